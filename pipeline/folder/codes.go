package folder

import "github.com/blis-train/blis-train/trace"

const codeDocumentChanged trace.Code = "document_changed"

// Codes are the warnings of this package, for docs/codes.md.
var Codes = []trace.CodeEntry{
	{Code: codeDocumentChanged, Kind: "warning", Meaning: "a JSON document of the output folder is not as it was written: its digest is " +
		"another. Its values are used as they stand", Action: "Nothing when you edited it on purpose; else run the stage that writes it again."},
}
