// Package source reads the files of a recording: archives, rotated sets and pipes come in, batches
// of whole lines or messages go through decoders on several workers, and their results come out in
// input order. The name files is already that of internal/files, which reads single files whole.
//
// [Stream] is the entry. It opens each [Input] by its content and unpacks it within [Limits]
// (source.go, zstd.go, msgpack.go), cuts it into batches (reader.go, messages.go), and gives them to
// a [Decoder] of each worker (stream.go, parse.go). A [Parsed] batch reaches the caller with line
// numbers of the file. The SHA-256 of each file is taken on the way (hash.go).
//
// [Cursor] walks JSON in place for decoders; [Lines] is what decoders of plain lines have in common.
//
// An [Account] counts records: every record is kept, or dropped for a reason with a place, so that
// read = kept + the sum of dropped. A broken place costs what it broke: the records before and after
// it survive where the framing shows where they begin.
//
// What has to wait until the end of the input waits in bounded memory: a [Spool] or [Sorter] sorts
// packed rows and spills to temporary files, a [RowFile] finds a row again at the place where it was
// put. A large file may be cut into [Part]s that several processes decode; [Store] writes what one
// of them found, and an Input with Stored names reads it back.
package source
