// Package report renders what the stages found as one self-contained HTML file
// that a performance engineer can act on, and each of its figures as SVG and
// PNG. The page opens from disk, asks the network for nothing (a content
// security policy in the file forbids it), prints well, follows the reader's
// light or dark preference and stays readable on a phone.
//
// The steps, each in its own files:
//
//	Input            pointers to the result structs of the stages; a nil one becomes a sentence
//	                 that says which command would fill the section
//	sections (sec*)  result structs -> section: tables, figures, findings, words
//	charts (fig*)    result structs -> figure: panels of marks in pixels
//	drawing          marks -> inline SVG (colours by CSS class, so both schemes work),
//	                 standalone SVG
//	page             sections -> HTML through html/template, which escapes every
//	                 string that came out of a recording
//
// The room does no arithmetic of its own beyond scaling to pixels, sorting and
// counting what it shows: every number on the page stands in a result struct.
// It refuses nothing and hides nothing silently: a table or a set of panels
// that would make the file too large is cut, worst rows first, and the line
// below says how many rows were left out and which JSON file holds them.
//
// The same Input gives the same bytes. The package reads no clock, no
// environment and no file.
package report
