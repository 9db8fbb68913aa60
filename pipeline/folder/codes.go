package folder

import "github.com/blis-train/blis-train/trace"

// Codes of this package.
const (
	codeDocumentChanged trace.Code = "document_changed"
	codeBadDocument     trace.Code = "bad_document"
)

// Codes are the warnings of this package, for docs/codes.md.
var Codes = []trace.CodeEntry{
	{Code: codeBadDocument, Kind: "error", Meaning: "a file that should be a JSON document of the output folder is no JSON",
		Action: "Run the stage that writes it again; a cut file has lost its end."},
	{Code: codeDocumentChanged, Kind: "warning", Meaning: "a JSON document of the output folder is not as it was written: its digest is " +
		"another. Its values are used as they stand", Action: "Nothing when you edited it on purpose; else run the stage that writes it again."},
}
