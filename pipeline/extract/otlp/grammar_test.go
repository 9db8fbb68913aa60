package otlp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/files"
)

// choices turns bytes into decisions, so that a fuzzer that changes a byte
// changes a decision, not the grammar.
type choices struct {
	b []byte
	i int
}

// next is a decision of n; 0 when the bytes are used up.
func (c *choices) next(n int) int {
	if c.i >= len(c.b) {
		return 0
	}
	c.i++
	return int(c.b[c.i-1]) % n
}

// one is true once in n; never when the bytes are used up.
func (c *choices) one(n int) bool { return c.next(n) == n-1 }

func (c *choices) of(list ...string) string { return list[c.next(len(list))] }

// wireField is a field of the grammar: JSON name, protobuf number, type.
type wireField struct {
	name   string
	number int
	kind   string // of a scalar, or of the message; "[]" in front of a list
}

// grammar is OTLP's trace messages as the protocol defines them.
var grammar = map[string][]wireField{
	"Traces":        {{"resourceSpans", 1, "[]ResourceSpans"}},
	"ResourceSpans": {{"resource", 1, "Resource"}, {"scopeSpans", 2, "[]ScopeSpans"}, {"schemaUrl", 3, "text"}},
	"Resource":      {{"attributes", 1, "[]KeyValue"}, {"droppedAttributesCount", 2, "uint32"}, {"entityRefs", 3, "[]EntityRef"}},
	"EntityRef":     {{"schemaUrl", 1, "text"}, {"type", 2, "text"}, {"idKeys", 3, "[]text"}, {"descriptionKeys", 4, "[]text"}},
	"ScopeSpans":    {{"scope", 1, "Scope"}, {"spans", 2, "[]Span"}, {"schemaUrl", 3, "text"}},
	"Scope":         {{"name", 1, "scope"}, {"version", 2, "text"}, {"attributes", 3, "[]KeyValue"}, {"droppedAttributesCount", 4, "uint32"}},
	"Span": {{"traceId", 1, "id16"}, {"spanId", 2, "id8"}, {"traceState", 3, "text"}, {"parentSpanId", 4, "id8"}, {"name", 5, "span"},
		{"kind", 6, "kind"},
		{"startTimeUnixNano", 7, "fixed64"}, {"endTimeUnixNano", 8, "fixed64"}, {"attributes", 9, "[]KeyValue"},
		{"droppedAttributesCount", 10, "uint32"},
		{"events", 11, "[]Event"}, {"droppedEventsCount", 12, "uint32"}, {"links", 13, "[]Link"}, {"droppedLinksCount", 14, "uint32"},
		{"status", 15, "Status"}, {"flags", 16, "fixed32"}},
	"Event": {{"timeUnixNano", 1, "fixed64"}, {"name", 2, "event"}, {"attributes", 3, "[]KeyValue"},
		{"droppedAttributesCount", 4, "uint32"}},
	"Link": {{"traceId", 1, "id16"}, {"spanId", 2, "id8"}, {"traceState", 3, "text"}, {"attributes", 4, "[]KeyValue"},
		{"droppedAttributesCount", 5, "uint32"}, {"flags", 6, "fixed32"}},
	"Status":   {{"message", 2, "text"}, {"code", 3, "code"}},
	"KeyValue": {{"key", 1, "key"}, {"value", 2, "AnyValue"}, {"keyStrindex", 3, "int32"}},
	"AnyValue": {{"stringValue", 1, "text"}, {"boolValue", 2, "bool"}, {"intValue", 3, "int64"}, {"doubleValue", 4, "double"},
		{"arrayValue", 5, "ArrayValue"},
		{"kvlistValue", 6, "KeyValueList"}, {"bytesValue", 7, "bytes"}, {"stringValueStrindex", 8, "int32"}},
	"ArrayValue":   {{"values", 1, "[]AnyValue"}},
	"KeyValueList": {{"values", 1, "[]KeyValue"}},
}

// words are values of text fields with a meaning.
var words = map[string][]string{
	"scope": {"vllm.scheduler", "vllm.api", "vllm.scheduler.step", "vllm.llm_engine", "other"},
	"span":  {"llm_core", "llm_request", "scheduler_steps_1", "scheduler_steps"},
	"event": eventNames[:],
	"key":   keyWords(),
}

func keyWords() []string {
	out := []string{"service.name", "process.pid", "other"}
	for _, a := range attrKeys {
		out = append(out, a.key)
	}
	return out
}

// fieldsOf picks fields of a message: rarely none, mostly the likely ones.
func (c *choices) fieldsOf(kind string, depth int) []wireField {
	all := grammar[kind]
	if kind == "AnyValue" && !c.one(8) {
		return []wireField{all[c.next(len(all))]} // one of
	}
	var out []wireField
	for i := range all {
		f := all[(i+depth)%len(all)]
		if !c.one(3) && (depth < 14 || !strings.HasSuffix(f.kind, "Value")) {
			out = append(out, f)
		}
	}
	return out
}

// jsonOf writes a message as JSON.
func (c *choices) jsonOf(kind string, depth int) string {
	if _, ok := grammar[kind]; !ok {
		return c.scalarJSON(kind)
	}
	var parts []string
	for _, f := range c.fieldsOf(kind, depth) {
		name := f.name
		if c.one(16) {
			name = snake(name)
		}
		parts = append(parts, fmt.Sprintf("%q:%s", name, c.valueJSON(f.kind, depth)))
	}
	if c.one(16) {
		parts = append(parts, `"unknown":`+c.strangeJSON())
	}
	return "{" + strings.Join(parts, c.of(",", ", ", " ,\t")) + "}"
}

func (c *choices) valueJSON(kind string, depth int) string {
	if c.one(48) {
		return c.strangeJSON()
	}
	of, list := strings.CutPrefix(kind, "[]")
	if !list {
		return c.jsonOf(kind, depth+1)
	}
	var items []string
	for range c.next(4) {
		items = append(items, c.jsonOf(of, depth+1))
	}
	return "[" + strings.Join(items, ",") + "]"
}

func (c *choices) strangeJSON() string {
	return c.of(`"x"`, `""`, "1", "-1", "1.5", "true", "[]", "{}", "[1]", `{"a":[{}]}`, `"1"`, "1e3", `[{"values":1}]`, "0.1e-2", "99999999999999999999")
}

func snake(name string) string {
	var b strings.Builder
	for _, ch := range name {
		if ch >= 'A' && ch <= 'Z' {
			b.WriteByte('_')
			ch += 'a' - 'A'
		}
		b.WriteRune(ch)
	}
	return b.String()
}

func (c *choices) scalarJSON(kind string) string {
	if list, ok := words[kind]; ok {
		return fmt.Sprintf("%q", c.of(list...))
	}
	list := shapes[kind]
	if c.one(40) {
		return c.of(list.odd...)
	}
	return c.of(list.plain...)
}

// shapes are ways to write scalars in JSON: what both readers must take, and
// what at least one of them may refuse.
var shapes = map[string]struct{ plain, odd []string }{
	"text":    {[]string{`"PREFILL"`, `""`, `"a\u0062\n"`, `"\ud83d\ude00"`, `"é"`, `"length"`, `"{\"}"`}, []string{`"\ud800"`, `"\ud800\ud800x"`, `"\udc00\n"`}},
	"bool":    {[]string{"true", "false"}, []string{"0", `"true"`}},
	"int32":   {numbers, oddNumbers},
	"int64":   {append([]string{`"9223372036854775807"`, "-9223372036854775808", "4294967296"}, numbers...), oddNumbers},
	"uint32":  {numbers[:4], oddNumbers},
	"fixed32": {numbers[:4], oddNumbers},
	"fixed64": {append([]string{"9223372036854775808", "18446744073709551615"}, numbers[:4]...), oddNumbers},
	"double": {[]string{"1", "0.5", "-0", "1e300", "1e-400", `"NaN"`, `"Infinity"`, `"-Infinity"`, `"1.5"`, "123456789.123456789",
		"20020.937100001", "5e-324", "0.1"}, []string{`"inf"`, `"0x1p-2"`, `"1_0"`, `""`, `"+1"`, "1e999", `"."`}},
	"bytes": {[]string{`"3q0="`, `""`}, []string{`"3q0"`, `"??"`}},
	"id8":   {[]string{`"0a5d2f346baa9455"`, `""`, `"0A5D2F346BAA9455"`, `"0000000000000000"`}, []string{`"0a5d"`, `"zz5d2f346baa9455"`}},
	"id16":  {[]string{`"374e6ee57c92377d5d2df595574dac92"`, `""`}, []string{`"374e6ee57c92377d5d2df595574dac9"`}},
	"kind":  {[]string{"1", `"SPAN_KIND_SERVER"`, "9"}, []string{`"SPAN_KIND_OTHER"`, `"1"`}},
	"code":  {[]string{"2", `"STATUS_CODE_ERROR"`, "-1"}, []string{`"STATUS_CODE_BAD"`, "2147483648"}},
}

var (
	numbers    = []string{"1", "0", `"7"`, `"2147483647"`, `"-3"`, "-0"}
	oddNumbers = []string{`"2147483648"`, "4294967296", "9223372036854775808", `"18446744073709551616"`, `"+1"`, `"01"`, `" 1"`, `""`, "1.0", `"1e2"`, "1E2", `"-0"`}
)

// protoOf writes a message as protobuf.
func (c *choices) protoOf(kind string, depth int) []byte {
	var out []byte
	for _, f := range c.fieldsOf(kind, depth) {
		of, list := strings.CutPrefix(f.kind, "[]")
		n := 1
		if list {
			n = c.next(4)
		} else if c.one(16) {
			n = 2 // a field given twice
		}
		for range n {
			out = c.fieldProto(out, f.number, of, depth)
		}
	}
	if c.one(16) {
		out = c.fieldProto(out, c.next(40)+100, "int64", depth)
	}
	return out
}

var wireOf = map[string]int{"bool": wireVarint, "int32": wireVarint, "int64": wireVarint, "uint32": wireVarint,
	"kind": wireVarint, "code": wireVarint,
	"fixed64": wireFixed64, "double": wireFixed64, "fixed32": wireFixed32}

func (c *choices) fieldProto(out []byte, number int, kind string, depth int) []byte {
	wire, scalar := wireOf[kind]
	if !scalar {
		wire = wireBytes
	}
	if c.one(64) {
		wire = c.next(8)
	}
	if c.one(64) {
		number = []int{1000, 1 << 29, 0, 1<<28 - 1}[c.next(4)]
	}
	out = binary.AppendUvarint(out, uint64(number)<<3|uint64(wire))
	num := []uint64{0, 1, 4, 127, 1 << 31, 1 << 32, 1<<63 - 1, 1 << 63, 1<<64 - 1, 0x40d38d3c00000000, 0x7ff8000000000001}[c.next(11)]
	switch wire {
	case wireVarint:
		return binary.AppendUvarint(out, num)
	case wireFixed64:
		return binary.LittleEndian.AppendUint64(out, num)
	case wireFixed32:
		return binary.LittleEndian.AppendUint32(out, uint32(num))
	case wireBytes:
		body := c.bytesOf(kind, depth)
		n := uint64(len(body))
		if c.one(128) {
			n += num
		}
		return append(binary.AppendUvarint(out, n), body...)
	}
	return out
}

func (c *choices) bytesOf(kind string, depth int) []byte {
	if _, ok := grammar[kind]; ok {
		return c.protoOf(kind, depth+1)
	}
	if list, ok := words[kind]; ok {
		return []byte(c.of(list...))
	}
	switch kind {
	case "id8":
		return c.idBytes("abcdefgh")
	case "id16":
		return c.idBytes("abcdefghijklmnop")
	}
	return []byte(c.of("PREFILL", "", "é", "\xff", "length"))
}

// idBytes is an id, or none, or a cut one.
func (c *choices) idBytes(full string) []byte {
	switch c.next(64) {
	case 1, 2, 3:
		return nil
	case 4:
		return []byte(full[1:])
	}
	return []byte(full)
}

// FuzzDocument is FuzzJSON over documents that follow OTLP's grammar nearly
// everywhere, which a change of single bytes of text seldom does.
func FuzzDocument(f *testing.F) {
	for _, seed := range randomBytes(24, 120) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := choices{b: data}
		checkJSON(t, []byte(c.jsonOf("Traces", 0)))
	})
}

// FuzzMessage is FuzzProto over messages that follow the grammar nearly
// everywhere.
func FuzzMessage(f *testing.F) {
	for _, seed := range randomBytes(24, 120) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := choices{b: data}
		checkProto(t, c.protoOf("Traces", 0))
	})
}

// randomBytes are n strings of about size bytes, the same each time.
func randomBytes(n, size int) [][]byte {
	rng := rand.New(rand.NewPCG(1, 2))
	out := make([][]byte, n)
	for i := range out {
		out[i] = make([]byte, size/2+rng.IntN(size))
		for k := range out[i] {
			out[i][k] = byte(rng.Uint32())
		}
	}
	return out
}

// TestReadersAgreeOnRandomDocuments compares our reader and the reference over some thousand
// documents of the grammar, as JSON and as protobuf.
func TestReadersAgreeOnRandomDocuments(t *testing.T) {
	taken := 0
	for _, seed := range randomBytes(3000, 300) {
		c := choices{b: seed}
		text := []byte(c.jsonOf("Traces", 0))
		checkJSON(t, text)
		if spans, err := decoded(parseJSON, text); err == nil && len(spans) > 0 {
			taken++
		}
		c = choices{b: seed}
		msg := c.protoOf("Traces", 0)
		checkProto(t, msg)
		if spans, err := decoded(parseProto, msg); err == nil && len(spans) > 0 {
			taken++
		}
		if t.Failed() {
			return
		}
	}
	if taken < 500 {
		t.Errorf("got %d documents with spans, want 500 or more: the grammar makes too much nonsense", taken)
	}
}

// TestQuickIntegers: the short path reads integers as strconv does, and leaves those of more than 18
// digits, and whatever does not close its pair, to the general reader.
func TestQuickIntegers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, tail := range []string{`"}},`, `"}}]`, `"}}`, `"}`, "/", ":", "\x80", "\xb0\xff", "\x00", "a", " ", ".1\"}},"} {
		for size := range 23 {
			for n := range 200 {
				text := make([]byte, size)
				for i := range text {
					text[i] = byte('0' + rng.IntN(10))
				}
				if n%2 == 0 {
					text = append([]byte("-"), text...)
				}
				want, at := int64(0), -1
				if size > 0 && size <= 18 && len(tail) == 4 && tail[0] == '"' {
					want, _ = strconv.ParseInt(string(text), 10, 64)
					at = len(text) + 3
				}
				var a attrs
				got := a.quickValue(stepID, append(bytes.Clone(text), tail...), 0)
				if got != at || at >= 0 && a.num[stepID] != want {
					t.Fatalf("%q and %q: got %d up to byte %d, want %d up to %d", text, tail, a.num[stepID], got, want, at)
				}
			}
		}
	}
}

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
	made := func() *Batch {
		n = 0
		m := &Batch{}
		fill(reflect.ValueOf(&m.Spans).Elem(), &n)
		fill(reflect.ValueOf(&m.Ignored).Elem(), &n)
		fill(reflect.ValueOf(&m.Texts).Elem(), &n)
		return m
	}
	want, got := made(), &Batch{}
	codec := files.NewCodec[Batch]()
	text := codec.Append(nil, made())
	restore := func(text []byte, to *Batch) error { return codec.Decode(text, to, files.NewInterner()) }
	if err := restore(text, got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", *got.Spans[0], *want.Spans[0])
	}
	for n := range text {
		if restore(text[:n], &Batch{}) == nil {
			t.Fatalf("the first %d of %d bytes pass for a message", n, len(text))
		}
	}
}
