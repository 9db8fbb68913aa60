package otlp

import (
	"reflect"
	"testing"

	"github.com/blis-train/blis-train/pipeline/extract/source"
)

// fill gives every field below v a value other than zero, another one each.
func fill(v reflect.Value, n *int) {
	v = reflect.NewAt(v.Type(), v.Addr().UnsafePointer()).Elem() // unexported ones too
	switch *n++; v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), n)
		fill(v.Index(1), n)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.String:
		v.SetString("text " + string(rune('a'+*n%26)))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(float64(*n) / 3)
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(uint64(*n%250 + 1))
	default:
		v.SetInt(int64(*n%250 + 1))
	}
}

// TestSpansWaitOnDiskWhole: every field of a message that was stored is there again.
func TestSpansWaitOnDiskWhole(t *testing.T) {
	n := 0
	made := func() *Message {
		n = 0
		m := &Message{}
		fill(reflect.ValueOf(&m.Spans).Elem(), &n)
		fill(reflect.ValueOf(&m.Ignored).Elem(), &n)
		fill(reflect.ValueOf(&m.Texts).Elem(), &n)
		return m
	}
	want, got := made(), &Message{}
	codec := source.NewCodec[Message]()
	text := codec.Append(nil, made())
	restore := func(text []byte, to *Message) error { return codec.Decode(text, to, source.NewInterner()) }
	if err := restore(text, got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", *got.Spans[0], *want.Spans[0])
	}
	for n := range text {
		if restore(text[:n], &Message{}) == nil {
			t.Fatalf("the first %d of %d bytes pass for a message", n, len(text))
		}
	}
}
