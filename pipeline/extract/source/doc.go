// Package source reads the large files of a recording: plain files, archives, rotated sets and pipes. It
// cuts them into batches of whole lines or messages, decodes the batches on several workers, and gives
// the results to the caller in input order. (Package internal/files reads single small files whole.)
//
// [Stream] is the entry. It opens each [Input] by its content and unpacks it within [Limits]
// (source.go, zstd.go, msgpack.go), cuts it into batches (reader.go, messages.go), and gives them to
// a [Decoder] of each worker (stream.go, parse.go). A [Parsed] batch reaches the caller with line
// numbers of the file. The SHA-256 of each file is computed from the bytes as they are read (hash.go).
//
// [Cursor] walks JSON in place for decoders; [Lines] is the part that all decoders of plain lines share.
//
// An [Account] counts records: every record is kept, or dropped for a reason with a place, so that
// read = kept + the sum of dropped. Damage in a file drops the damaged records alone: those before and
// after are kept if the framing (line ends, length prefixes, zstd frames) shows where the next begins.
//
// Rows that can be used only after the end of the input are kept in bounded memory: a [Spool] or
// [Sorter] sorts packed rows and writes those that exceed its memory to temporary files; a [RowFile]
// stores rows and reads any of them again by its position. A large file may be cut into [Part]s that
// several processes decode: [Store] writes the results of one part to a file, and a later process
// reads these files as an Input whose Stored lists their names.
package source
