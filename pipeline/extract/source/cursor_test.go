package source

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
)

// TestCursorValues: what each reader of a value takes, the byte after it, and the fault of what it does not take with
// its place.
func TestCursorValues(t *testing.T) {
	read := map[string]func(c *Cursor) (string, bool){
		"string": func(c *Cursor) (string, bool) { v, ok := c.Str(); return string(v), ok },
		"number": func(c *Cursor) (string, bool) { v, ok := c.Number(); return string(v), ok },
		"int":    func(c *Cursor) (string, bool) { v, ok := c.Int64(); return fmt.Sprint(v), ok },
		"stamp":  func(c *Cursor) (string, bool) { v, ok := c.Stamp(); return fmt.Sprint(v), ok },
		"count":  func(c *Cursor) (string, bool) { v, ok := c.Count(); return fmt.Sprint(v), ok },
		"float":  func(c *Cursor) (string, bool) { v, ok := c.Float(); return fmt.Sprint(v), ok },
		"skip":   func(c *Cursor) (string, bool) { return "", c.Skip(0) },
		"null":   func(c *Cursor) (string, bool) { return "", c.Null() },
		"key":    func(c *Cursor) (string, bool) { v, ok := c.Key(); return string(v), ok },
	}
	for _, c := range []struct {
		kind, text, want string
		next             int    // where the cursor is after the value, or the fault
		fault            string // "" for none
	}{
		{"string", `"abc"d`, "abc", 5, ""}, {"string", `""`, "", 2, ""}, {"string", `"0123456789abcdef"`, "0123456789abcdef", 18, ""},
		{"string", `"a\"\\\/\b\f\n\r\tz"x`, "a\"\\/\b\f\n\r\tz", 20, ""}, {"string", `"\u00e9\u20AC"`, "é€", 14, ""},
		{"string", `"\ud83d\ude00!"`, "😀!", 15, ""}, {"string", `"\ud83dx"`, "\ufffdx", 9, ""}, {"string", `"\ud83d\u0041"`, "\ufffdA", 14, ""},
		{"string", `abc`, "", 0, `got 'a', want a string`}, {"string", ``, "", 0, "got the end of the text, want a string"},
		{"string", `"ab`, "", 3, "got the end of the text inside a string"}, {"string", `"a\`, "", 3, "got the end of the text inside a string"},
		{"string", `"a\nb`, "", 5, "got the end of the text inside a string"}, {"string", "\"a\x01\"", "", 2, `got the raw control character '\x01' in a string`},
		{"string", "\"\\n\x1f\"", "", 3, `got the raw control character '\x1f' in a string`}, {"string", "\"\\n\x20\"", "\n ", 5, ""},
		{"string", `"\x"`, "", 1, `got the escape \x, want one of JSON's`}, {"string", `"\u12g4"`, "", 1, `got 'g' in a \u escape, want four hexadecimal digits`},
		{"string", `"\u12`, "", 5, "got the end of the text inside a string"}, {"string", `"\ud83d\u1"`, "", 11, "got the end of the text inside a string"},
		{"number", `-12.50e+3,`, "-12.50e+3", 9, ""}, {"number", `0]`, "0", 1, ""}, {"number", "9E9", "9E9", 3, ""},
		{"number", `01`, "", 2, "got a number with a leading zero"}, {"number", `-`, "", 1, "got the end of the text, want a number"},
		{"number", `1.x`, "", 2, "got 'x', want a digit after '.'"}, {"number", `1e+`, "", 3, "got the end of the text, want a digit in the exponent"},
		{"int", `-9223372036854775808`, "-9223372036854775808", 20, ""}, {"int", `"12"`, "12", 4, ""}, {"int", `9223372036854775808`, "0", 0, `got "9223372036854775808", want an integer of 64 bits`},
		{"int", `1.5`, "0", 0, `got "1.5", want an integer of 64 bits`}, {"int", `null`, "0", 0, "got 'n', want an integer"},
		{"stamp", `18446744073709551615`, "18446744073709551615", 20, ""}, {"stamp", `"-1"`, "0", 0, `got "-1", want a time in ns of 64 bits`},
		{"count", ` 4294967295`, "4294967295", 11, ""}, {"count", ` 4294967296`, "0", 1, `got "4294967296", want a count of 32 bits`},
		{"float", ` 0.1 `, "0.1", 4, ""}, {"float", `"Infinity"`, "+Inf", 10, ""}, {"float", `1e400`, "0", 0, `got "1e400", want a double`}, {"float", `true`, "0", 0, "got 't', want a number"},
		{"skip", ` {"a":[1,2,{"b":null}],"c":true,"d":false,"e":"x"}z`, "", 50, ""}, {"skip", `[]`, "", 2, ""}, {"skip", `{}`, "", 2, ""}, {"skip", `1e400`, "", 0, `got "1e400", want a double`},
		{"skip", `1e40`, "", 4, ""}, {"skip", `[1,]`, "", 3, "got ']', want a value after ','"}, {"skip", `[1 2]`, "", 3, "got '2', want ',' or ']'"},
		{"skip", `{"a" 1}`, "", 5, "got '1', want ':'"}, {"skip", `{1:2}`, "", 1, "got '1', want a string"}, {"skip", `nul`, "", 0, "got 'n', want null"}, {"skip", `x`, "", 0, "got 'x', want a value"},
		{"skip", `tru`, "", 0, "got 't', want true"}, {"skip", `fals`, "", 0, "got 'f', want false"}, {"skip", `[1`, "", 2, "got the end of the text, want ',' or ']'"},
		{"null", "\t null,", "", 6, ""}, {"key", ` "k" : 1`, "k", 6, ""}, {"key", `"k"`, "", 3, "got the end of the text, want ':'"},
		{"skip", strings.Repeat("[", 513) + strings.Repeat("]", 513), "", 1026, ""}, {"skip", strings.Repeat("[", 514), "", 513, "got values nested deeper than 512"},
	} {
		cur := Cursor{B: []byte(c.text)}
		got, ok := read[c.kind](&cur)
		at, fault := cur.I, ""
		if cur.Err != nil {
			at, fault = cur.Err.At, cur.Err.Error()
		}
		if ok != (c.fault == "") || fault != c.fault || at != c.next || ok && got != c.want {
			t.Errorf("%s %.60q: got %q, %t, at %d, %q; want %q at %d, %q", c.kind, c.text, got, ok, at, fault, c.want, c.next, c.fault)
		}
		if cur.Surrogate != strings.Contains(c.want, "\ufffd") {
			t.Errorf("%s %q: got surrogate %t", c.kind, c.text, cur.Surrogate)
		}
	}
	c := Cursor{B: []byte("                 x")} // 17 blanks: two words of eight and one
	if c.Peek() != 'x' || c.I != 17 || !c.Take('x') || c.Peek() != 0 || c.Take('y') || c.Fail("later") {
		t.Errorf("got %+v", c)
	}
	if c.Err.Msg != "got the end of the text, want 'y'" {
		t.Errorf("got %v, want the first fault", c.Err)
	}
	if (&Cursor{B: []byte("1")}).Null() {
		t.Error("1 is not null")
	}
	var keys []string
	c = Cursor{B: []byte(`{"a": 1, "b": {"x": 2}, "c": 3}`)}
	for k := range c.MembersOrNull {
		keys = append(keys, string(k))
		c.Skip(0)
	}
	c2 := Cursor{B: []byte("null")}
	for range c2.MembersOrNull {
		t.Error("null has members")
	}
	if fmt.Sprint(keys) != "[a b c]" || c.I != 31 || c2.I != 4 || c2.Err != nil {
		t.Errorf("got %q at %d", keys, c.I)
	}
}

// TestQuickFloat: plain decimals of up to 17 characters and 53 bits; all others are left to strconv.
func TestQuickFloat(t *testing.T) {
	for text, want := range map[string]float64{"0": 0, "-2.5": -2.5, "9007199254740992": 1 << 53, "0.000000000000001": 1e-15, "123456789.123": 123456789.123, "-0.1": -0.1} {
		if got, ok := QuickFloat([]byte(text)); !ok || got != want {
			t.Errorf("%s: got %g, %t", text, got, ok)
		}
	}
	for fraction := 1; fraction <= 15; fraction++ { // every power of ten: 7, 0.7, 0.07, ...
		text := "0." + strings.Repeat("0", fraction-1) + "7"
		if want, _ := strconv.ParseFloat(text, 64); want > 0 {
			if got, ok := QuickFloat([]byte(text)); !ok || got != want {
				t.Errorf("%s: got %g, %t", text, got, ok)
			}
		}
	}
	if got, ok := QuickFloat([]byte(".0000000000000007")); !ok || got != 7e-16 {
		t.Errorf("16 digits: got %g, %t", got, ok)
	}
	for _, text := range []string{"", "-", "1.", "1e5", "+1", "1.2.3", "9007199254740993", "123456789012345678", "x"} {
		if got, ok := QuickFloat([]byte(text)); ok {
			t.Errorf("%s: got %g", text, got)
		}
	}
}

// packOf converts MessagePack to JSON lines.
func packOf(limit int64, framed bool, data ...byte) (string, error) {
	text, err := io.ReadAll(&packLines{r: bufio.NewReader(bytes.NewReader(data)), framed: framed, limit: limit})
	return string(text), err
}

// TestMessagePack: each type of the specification with its value as JSON, whatever is cut or unknown, and the limits.
func TestMessagePack(t *testing.T) {
	text := func(n int) []byte { return bytes.Repeat([]byte{'a'}, n) }
	for _, c := range []struct {
		data []byte
		want string
	}{
		{[]byte{0x00}, "0"}, {[]byte{0x7f}, "127"}, {[]byte{0xff}, "-1"}, {[]byte{0xe0}, "-32"},
		{[]byte{0xcc, 200}, "200"}, {[]byte{0xcd, 1, 0}, "256"}, {[]byte{0xce, 0, 1, 0, 0}, "65536"}, {[]byte{0xcf, 255, 255, 255, 255, 255, 255, 255, 255}, "18446744073709551615"},
		{[]byte{0xd0, 0x80}, "-128"}, {[]byte{0xd1, 0xff, 0x00}, "-256"}, {[]byte{0xd2, 0xff, 0xff, 0xff, 0xfe}, "-2"}, {[]byte{0xd3, 0, 0, 0, 0, 0, 0, 1, 0}, "256"},
		{[]byte{0xca, 0x3f, 0x80, 0, 0}, "1"}, {[]byte{0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0}, "1.5"}, {[]byte{0xc0}, "null"}, {[]byte{0xc2}, "false"}, {[]byte{0xc3}, "true"},
		{[]byte{0x93, 1, 2, 3}, "[1,2,3]"}, {[]byte{0x90}, "[]"}, {[]byte{0x82, 0xa1, 'k', 1, 0xa1, 'l', 2}, `{"k":1,"l":2}`}, {[]byte{0x80}, "{}"},
		{append([]byte{0xbf}, text(31)...), `"` + string(text(31)) + `"`}, {append([]byte{0xd9, 40}, text(40)...), `"` + string(text(40)) + `"`},
		{append([]byte{0xda, 0, 3}, text(3)...), `"aaa"`}, {append([]byte{0xdb, 0, 0, 0, 2}, text(2)...), `"aa"`},
		{[]byte{0xc4, 3, 'a', 'b', 'c'}, `"YWJj"`}, {[]byte{0xc5, 0, 1, 'a'}, `"YQ=="`}, {[]byte{0xc6, 0, 0, 0, 1, 'a'}, `"YQ=="`},
		{[]byte{0xdc, 0, 2, 1, 2}, "[1,2]"}, {[]byte{0xdd, 0, 0, 0, 1, 7}, "[7]"}, {[]byte{0xde, 0, 1, 0xa1, 'k', 7}, `{"k":7}`}, {[]byte{0xdf, 0, 0, 0, 1, 0xa1, 'k', 7}, `{"k":7}`},
		{[]byte{0xa2, '"', '\n'}, `"\"\n"`},
	} {
		got, err := packOf(100, false, c.data...)
		if err != nil || got != c.want+"\n" || !json.Valid([]byte(got)) {
			t.Errorf("% x: got %q and %v, want %s", c.data, got, err, c.want)
		}
		if got, err = packOf(100, false, append(bytes.Clone(c.data), c.data...)...); err != nil || got != c.want+"\n"+c.want+"\n" {
			t.Errorf("% x twice: got %q and %v", c.data, got, err)
		}
		framed := append([]byte{0, 0, 0, byte(len(c.data))}, c.data...)
		if got, err = packOf(100, true, framed...); err != nil || got != c.want+"\n" {
			t.Errorf("% x framed: got %q and %v", c.data, got, err)
		}
		if len(c.data) > 1 {
			if got, err = packOf(100, false, c.data[:len(c.data)-1]...); err == nil || got != "" {
				t.Errorf("% x cut: got %q and %v", c.data, got, err)
			}
		}
	}
	deep := func(n int) []byte { return append(bytes.Repeat([]byte{0x91}, n), 1) }
	for _, c := range []struct {
		data  []byte
		limit int64
		want  string // the error, "" for none
	}{
		{deep(16), 100, ""}, {deep(17), 100, "got values nested deeper than 16"}, {[]byte{0xc1}, 100, "got a value of no known MessagePack type"},
		{[]byte{0xc7, 1, 1, 1}, 100, "got a value of no known MessagePack type"}, {[]byte{0xcb, 0x7f, 0xf0, 0, 0, 0, 0, 0, 0}, 100, "got the number +Inf"},
		{[]byte{0xca, 0x7f, 0xc0, 0, 0}, 100, "got the number NaN"}, {append([]byte{0xa4}, text(4)...), 4, ""},
		{append([]byte{0xa5}, text(5)...), 4, "got a text of 5 bytes, want at most 4 (--max-line)"}, {[]byte{0x81, 1, 1}, 100, "got a key that is no text"},
		{append([]byte{0x9b}, bytes.Repeat([]byte{1}, 11)...), 5, "got a message of more than 5 bytes (--max-line)"}, // the eleventh value begins behind 21 bytes
		{append([]byte{0x9a}, bytes.Repeat([]byte{1}, 10)...), 5, ""},
	} {
		_, err := packOf(c.limit, false, c.data...)
		if got := fmt.Sprint(err); c.want == "" && err != nil || c.want != "" && got != c.want {
			t.Errorf("% x: got %s, want %q", c.data, got, c.want)
		}
	}
	if _, err := packOf(100, true, 0, 0); !IsCut(err) {
		t.Errorf("a cut length: got %v", err)
	}
	for _, c := range []struct {
		head           []byte
		isPack, framed bool
	}{
		{[]byte{0x92, 0xcb, 0}, true, false}, {[]byte{0x94, 0xcb}, true, false}, {[]byte{0x95, 0xcb}, false, true}, {[]byte{0x91, 0xcb}, false, true}, {[]byte{0x92}, false, true},
		{[]byte{0, 0, 0, 9, 0x93, 0xcb}, true, true}, {[]byte{0, 0, 0, 9, 0x93}, false, true}, {[]byte{0x93, 0xca}, false, true},
	} {
		if isPack, framed := isMessagePack(c.head); isPack != c.isPack || isPack && framed != c.framed {
			t.Errorf("% x: got %t, framed %t", c.head, isPack, framed)
		}
	}
}

// TestDecimal: every length of digits, at the end of a text and before any other character, is the number that strconv reads.
func TestDecimal(t *testing.T) {
	for n := range 22 {
		for _, digits := range []string{strings.Repeat("9", n), strings.Repeat("0", n), "1844674407370955161512"[:n], "0102030405060708090102"[:n]} {
			for ch := range 256 {
				for _, rest := range []string{"", string([]byte{byte(ch)}), strings.Repeat(string([]byte{byte(ch)}), 24)} {
					if ch >= '0' && ch <= '9' && rest != "" {
						continue
					}
					want, wantN := uint64(0), 0
					if n > 0 && n <= 19 {
						want, _ = strconv.ParseUint(digits, 10, 64)
						wantN = n
					}
					if got, gotN := Decimal([]byte(digits + rest)); got != want || gotN != wantN {
						t.Fatalf("%q and %q: got %d of %d digits, want %d of %d", digits, rest, got, gotN, want, wantN)
					}
				}
			}
		}
	}
}
