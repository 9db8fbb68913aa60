package folder

import "github.com/blis-train/blis-train/trace"

// codeBadDocument is a document that is no JSON.
const codeBadDocument trace.Code = "bad_document"
