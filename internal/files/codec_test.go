package files

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/trace"
)

// packed has a field of every kind that a Codec packs.
type packed struct {
	Yes, No bool
	Big     int64
	Int     int
	Small   int32
	Byte    uint8
	Bits    uint64
	X       float64
	Text    string
	Array   [2]int64
	Raw     [3]byte
	List    []string
	Known   trace.Opt[int64]
	Unknown trace.Opt[int64]
	To      *inner
	hidden  int64
	Skipped int64 `packed:"-"`
}

type inner struct {
	Text string
	N    int64
}

// TestCodec: every field comes back, but for those that are left out; what is cut or followed by more is an error.
func TestCodec(t *testing.T) {
	c := NewCodec[packed]()
	want := packed{Yes: true, Big: math.MinInt64, Int: -5, Small: 1 << 30, Byte: 200, Bits: 1<<63 + 1, X: -0.1, Text: "text", Array: [2]int64{7, -8},
		Raw: [3]byte{1, 2, 3}, List: []string{"a", "", "text"}, Known: trace.Some(int64(9)), To: &inner{"inner", 3}, hidden: 11}
	in := want
	in.Skipped = 12
	in.Unknown.V = 13 // of an unknown value nothing is packed
	text := c.Append([]byte("before"), &in)
	if !strings.HasPrefix(string(text), "before") {
		t.Fatalf("got %q", text)
	}
	text = text[6:]
	var got packed
	if err := c.Decode(text, &got, NewInterner()); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	got = packed{}
	if rest, err := c.Head(append(text, "rest"...), &got, NewInterner()); err != nil || string(rest) != "rest" || !reflect.DeepEqual(got, want) {
		t.Errorf("got %q and %v", rest, err)
	}
	if err := c.Decode(append(text, 0), new(packed), NewInterner()); err == nil || err.Error() != "got 1 bytes behind a packed files.packed" {
		t.Errorf("a byte more: got %v", err)
	}
	for n := range text {
		if err := c.Decode(text[:n], new(packed), NewInterner()); err == nil {
			t.Errorf("the first %d of %d bytes were decoded", n, len(text))
		}
	}
	for _, c := range []struct {
		value any
		bytes int
	}{{true, 1}, {int64(63), 1}, {int64(64), 2}, {1.0, 8}, {"ab", 3}, {[2]byte{}, 2}, {[]int64{1}, 2}} {
		v := reflect.New(reflect.TypeOf(c.value))
		v.Elem().Set(reflect.ValueOf(c.value))
		x := pen{}
		fieldOf(v.Elem().Type())(&x, v.UnsafePointer())
		if len(x.b) != c.bytes {
			t.Errorf("%v: got %d bytes, want %d", c.value, len(x.b), c.bytes)
		}
	}
	// A list that states more elements than there are bytes must not be allocated.
	lists := NewCodec[[]int64]()
	if err := lists.Decode([]byte{0xfe, 0xff, 0xff, 0xff, 0x0f, 0}, new([]int64), NewInterner()); err == nil {
		t.Error("a list longer than its bytes was decoded")
	}
	full := []int64{5, 6}
	if err := lists.Decode(lists.Append(nil, &[]int64{3}), &full, NewInterner()); err != nil || !reflect.DeepEqual(full, []int64{3}) {
		t.Errorf("got %v and %v", full, err)
	}
	if err := lists.Decode(lists.Append(nil, &[]int64{}), &full, NewInterner()); err != nil || len(full) != 0 {
		t.Errorf("an empty list: got %v and %v", full, err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a map was packed")
		}
	}()
	NewCodec[map[string]int]()
}

// TestInterner: equal texts are one string, also after it has forgotten 65,536 others.
func TestInterner(t *testing.T) {
	s := NewInterner()
	for i := range 1<<16 + 1 {
		if n := len(s.m); n != i && i <= 1<<16 {
			t.Fatalf("after %d texts: got %d", i, n)
		}
		if got := s.Get([]byte{byte(i), byte(i >> 8), byte(i >> 16)}); len(got) != 3 || got[0] != byte(i) {
			t.Fatalf("text %d: got %q", i, got)
		}
	}
	if len(s.m) != 1 {
		t.Errorf("after 65,537 texts: got %d", len(s.m))
	}
	if got := s.Get([]byte("\x00\x00\x01")); got != "\x00\x00\x01" || len(s.m) != 1 {
		t.Errorf("got %q of %d", got, len(s.m))
	}
}
