// Package folder is the output folder that the stages share.
//
// A stage first claims the folder with [Claim], which returns an error for a folder with files of other
// programs and locks out other processes. It then reads the documents of earlier stages with [ReadDocument] and
// [LoadCoefficients], and writes its own with [WriteDocument], which replaces a file whole or not at all.
// [Header] starts every document with the version of the tool, the command and the inputs; [ReadInput]
// reads a file and records it as an input by name, size and hash.
//
// The names of all files in the folder are constants here. The folder's tables of traces are read and
// written by trace/table, and compared with extract.json by pipeline/extract.
package folder
