package table

// This file replaces the zstd codec of the Parquet library by one that shares memory.

import (
	"io"

	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/klauspost/compress/zstd"
)

// sharedZstd is a codec with one encoder for all pages, which is safe for concurrent use. The
// library's codec makes a new zstd encoder for every page when a level is asked for, which costs
// more than the compression.
type sharedZstd struct {
	compress.Codec // for streams and bounds
	enc            *zstd.Encoder
}

// Encode returns src compressed, in dst if it is large enough.
func (c sharedZstd) Encode(dst, src []byte) []byte { return c.enc.EncodeAll(src, dst[:0]) }

// EncodeLevel returns what Encode does; the level is that of the shared encoder.
func (c sharedZstd) EncodeLevel(dst, src []byte, _ int) []byte { return c.Encode(dst, src) }

// pageBytes is the usual size of a data page, and the window of the encoder.
const pageBytes = 1 << 18

// registered is the error of registering the codec. That happens when the package is loaded, before
// any file is opened.
var registered = registerZstd()

// registerZstd makes sharedZstd the library's codec for zstd.
func registerZstd() error {
	base, err := compress.GetCodec(compress.Codecs.Zstd)
	if err != nil {
		return err
	}
	enc, err := zstd.NewWriter(io.Discard, zstd.WithZeroFrames(true), zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithEncoderConcurrency(4), zstd.WithWindowSize(pageBytes), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return err
	}
	compress.RegisterCodec(compress.Codecs.Zstd, sharedZstd{Codec: base, enc: enc})
	return nil
}
