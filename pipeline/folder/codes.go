package folder

import "github.com/blis-train/blis-train/trace"

// Codes of this package.
const (
	codeDocumentChanged trace.Code = "document_changed"
	codeBadDocument     trace.Code = "bad_document"
)
