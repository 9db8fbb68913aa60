package table

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/thrift/lib/go/thrift"

	"github.com/blis-train/blis-train/trace"
)

// TestPlainValuesByHand reads two values of each type, twice, and then finds a byte too few.
func TestPlainValuesByHand(t *testing.T) {
	le := binary.LittleEndian
	int32s := le.AppendUint32(le.AppendUint32(le.AppendUint32(nil, 7), math.MaxUint32), 1<<31)
	int64s := le.AppendUint64(le.AppendUint64(le.AppendUint64(nil, 7), math.MaxUint64), 1<<40)
	doubles := le.AppendUint64(le.AppendUint64(le.AppendUint64(nil, math.Float64bits(1.5)), math.Float64bits(-2)), math.Float64bits(1e300))
	texts := append(append(le.AppendUint32(nil, 2), "ab"...), append(le.AppendUint32(nil, 0), append(le.AppendUint32(nil, 1), "c"...)...)...)
	for name, c := range map[string]struct {
		b        []byte
		l        leaf
		two, one values
	}{
		"int32":           {int32s, leaf{physical: parquet.Types.Int32}, values{ints: []int64{7, -1}}, values{ints: []int64{math.MinInt32}}},
		"unsigned int32":  {int32s, leaf{physical: parquet.Types.Int32, unsigned: true}, values{ints: []int64{7, math.MaxUint32}}, values{ints: []int64{1 << 31}}},
		"int64":           {int64s, leaf{physical: parquet.Types.Int64}, values{ints: []int64{7, -1}}, values{ints: []int64{1 << 40}}},
		"double":          {doubles, leaf{physical: parquet.Types.Double}, values{floats: []float64{1.5, -2}}, values{floats: []float64{1e300}}},
		"text":            {texts, leaf{physical: parquet.Types.ByteArray}, values{texts: []string{"ab", ""}}, values{texts: []string{"c"}}},
		"several of bits": {[]byte{0b10_0000_01, 0}, leaf{physical: parquet.Types.Boolean}, values{bools: []bool{true, false}}, values{bools: []bool{false}}},
	} {
		p := plain{b: c.b}
		for _, want := range []values{c.two, c.one} {
			n := len(want.ints) + len(want.floats) + len(want.texts) + len(want.bools)
			var got values
			if err := p.readValues(&got, c.l, n); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: got %+v, %v, want %+v", name, got, err, want)
			}
		}
		if c.l.physical == parquet.Types.Boolean {
			continue
		}
		short := plain{b: c.b[:len(c.b)-1]}
		if err := short.readValues(&values{}, c.l, 3); !errors.Is(err, errShort) {
			t.Errorf("%s: a byte too few: got %v", name, err)
		}
	}
	p := plain{b: int64s}
	if err := p.readValues(&values{}, leaf{physical: parquet.Types.Int64, unsigned: true}, 1); err != nil {
		t.Error(err)
	}
	if err := p.readValues(&values{}, leaf{physical: parquet.Types.Int64, unsigned: true}, 1); err == nil || !strings.Contains(err.Error(), "got 18446744073709551615, want at most 9223372036854775807") {
		t.Errorf("an unsigned number above the largest: got %v", err)
	}
	// Booleans: nine bits of two bytes, one by one, then all seven that are left, then one too many.
	p = plain{b: []byte{0b1000_0001, 0b0000_0010}}
	got := make([]bool, 9)
	if err := p.fillBools(got); err != nil || !slices.Equal(got, []bool{true, false, false, false, false, false, false, true, false}) {
		t.Errorf("got %v, %v", got, err)
	}
	if err := p.fillBools(got[:7]); err != nil || !got[0] || got[1] {
		t.Errorf("got %v, %v", got[:7], err)
	}
	if err := p.fillBools(got[:1]); !errors.Is(err, errShort) {
		t.Errorf("got %v", err)
	}
	p = plain{isRuns: true, runs: runs{b: []byte{3 << 1, 1, 2 << 1, 0}, width: 1}}
	if err := p.fillBools(got[:5]); err != nil || !slices.Equal(got[:5], []bool{true, true, true, false, false}) {
		t.Errorf("got %v, %v", got[:5], err)
	}
	if err := p.fillBools(got[:1]); !errors.Is(err, errShort) {
		t.Errorf("got %v", err)
	}
	for n, want := range map[string]error{"\x02\x00\x00\x00ab": nil, "\x03\x00\x00\x00ab": errShort, "\x00\x00\x00": errShort} {
		p := plain{b: []byte(n)}
		if err := p.fillTexts(make([]string, 1)); !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("%q: got %v, want %v", n, err, want)
		}
	}
}

// TestRunsByHand reads runs of one value and packed groups of several widths.
func TestRunsByHand(t *testing.T) {
	for name, c := range map[string]struct {
		b     []byte
		width int
		want  []int32 // -1: no more
	}{
		"same, one bit":         {[]byte{3 << 1, 1}, 1, []int32{1, 1, 1, -1}},
		"same, eight bits":      {[]byte{2 << 1, 200}, 8, []int32{200, 200, -1}},
		"same, nine bits":       {[]byte{2 << 1, 0x2c, 1}, 9, []int32{300, 300, -1}},
		"same, 17 bits":         {[]byte{1 << 1, 1, 2, 1}, 17, []int32{0x10201, -1}},
		"same, a byte too few":  {[]byte{2 << 1, 0x2c}, 9, []int32{-1}},
		"packed, one bit":       {[]byte{1<<1 | 1, 0b1010_0011}, 1, []int32{1, 1, 0, 0, 0, 1, 0, 1, -1}},
		"packed, three bits":    {[]byte{1<<1 | 1, 0b10_001_000, 0b1_100_011_0, 0b111_110_10}, 3, []int32{0, 1, 2, 3, 4, 5, 6, 7, -1}},
		"packed, cut":           {[]byte{1<<1 | 1, 0b10_001_000}, 3, []int32{0, 1, -1}},
		"packed, nothing":       {[]byte{1<<1 | 1}, 3, []int32{-1}},
		"packed, no bits":       {[]byte{1<<1 | 1}, 0, []int32{0, 0, 0, 0, 0, 0, 0, 0, -1}},
		"two groups":            {[]byte{2<<1 | 1, 1, 2}, 1, []int32{1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, -1}},
		"both":                  {[]byte{1 << 1, 5, 1<<1 | 1, 0x21, 0x43, 0x65, 0x87}, 4, []int32{5, 1, 2, 3, 4, 5, 6, 7, 8, -1}},
		"of no value":           {[]byte{0, 5}, 4, []int32{-1}},
		"of no groups":          {[]byte{1, 5}, 4, []int32{-1}},
		"nothing":               {nil, 4, []int32{-1}},
		"no end of its head":    {[]byte{0x80}, 4, []int32{-1}},
		"many":                  {binary.AppendUvarint(nil, uint64(math.MaxInt32/8)<<1), 0, []int32{0, 0, 0}},
		"too many":              {binary.AppendUvarint(nil, uint64(math.MaxInt32/8+1)<<1), 0, []int32{-1}},
		"more than eight bytes": {append([]byte{2<<1 | 1}, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0, 7, 0, 8, 0, 9), 16, []int32{1, 2, 3, 4, 5, 6, 7, 8, -1}},
	} {
		r := runs{b: c.b, width: c.width}
		for i, want := range c.want {
			var v [1]int32
			ok := r.readInto(v[:])
			if ok != (want >= 0) || ok && v[0] != want {
				t.Errorf("%s: value %d: got %d, %v, want %d", name, i, v[0], ok, want)
				break
			}
		}
	}
}

// TestRunsAreWrittenByHand: eight equal numbers are a run, fewer are packed, but where nothing else follows.
func TestRunsAreWrittenByHand(t *testing.T) {
	many := func(n int, v int32) []int32 { return slices.Repeat([]int32{v}, n) }
	packed := func(head byte, groups int, v byte) []byte {
		return append([]byte{head}, bytes.Repeat([]byte{v}, groups)...)
	}
	for name, c := range map[string]struct {
		list  []int32
		width int
		want  []byte
	}{
		"eight":               {many(8, 1), 1, []byte{8 << 1, 1}},
		"seven, and no more":  {many(7, 1), 1, []byte{7 << 1, 1}},
		"seven and another":   {append(many(7, 1), 0), 1, []byte{3, 0x7f}},
		"two bytes":           {many(9, 300), 9, []byte{9 << 1, 0x2c, 1}},
		"no bits":             {many(9, 0), 0, []byte{9 << 1}},
		"packed, then a run":  {append([]int32{0, 1, 0, 1, 0, 1, 0, 1}, many(8, 1)...), 1, []byte{3, 0xaa, 8 << 1, 1}},
		"packed, then seven":  {append([]int32{0, 1, 0, 1, 0, 1, 0, 0}, many(7, 1)...), 1, []byte{5, 0x2a, 0x7f}},
		"three bits":          {[]int32{0, 1, 2, 3, 4, 5, 6, 7}, 3, []byte{3, 0x88, 0xc6, 0xfa}},
		"63 groups, then one": {slices.Repeat([]int32{0, 1}, 4*64), 1, append(packed(127, 63, 0xaa), 3, 0xaa)},
		"nothing":             {nil, 1, nil},
	} {
		if got := appendRuns(nil, c.list, c.width); !bytes.Equal(got, c.want) {
			t.Errorf("%s: got % x, want % x", name, got, c.want)
		}
	}
	if got := appendLevels([]byte{9}, []int16{1, 1, 0}); !bytes.Equal(got, []byte{9, 2, 0, 0, 0, 3, 3}) {
		t.Errorf("levels: got % x", got)
	}
	if got := appendBools([]byte{9}, []bool{true, false, true, false, false, false, false, false, true}); !bytes.Equal(got, []byte{9, 5, 1}) {
		t.Errorf("booleans: got % x", got)
	}
	if got := appendTexts([]byte{9}, []string{"ab", ""}); !bytes.Equal(got, []byte{9, 2, 0, 0, 0, 'a', 'b', 0, 0, 0, 0}) {
		t.Errorf("texts: got % x", got)
	}
	for _, c := range []struct {
		kind kind
		unit string
		want bool
	}{{kindInt64, "", true}, {kindInt64, "ns", false}, {kindInt64, "us", false}, {kindInt64, "tokens", true}, {kindFloat64, "", false}, {kindString, "", true}} {
		col := column{kind: c.kind}
		col.Unit = c.unit
		if got := col.repeats(); got != c.want {
			t.Errorf("%v in %q: got %v", c.kind, c.unit, got)
		}
	}
}

// TestDictionariesByHand: distinct values by their first appearance, of lists one after another.
func TestDictionariesByHand(t *testing.T) {
	var d intDict
	for range 3 {
		uniq, idx := d.build([]int64{5, -1, 5, 5, 9, -1, math.MaxInt64})
		if !slices.Equal(uniq, []int64{5, -1, 9, math.MaxInt64}) || !slices.Equal(idx, []int32{0, 1, 0, 0, 2, 1, 3}) {
			t.Errorf("got %v, %v", uniq, idx)
		}
		var long []int64
		for i := range int64(1000) {
			long = append(long, i%700<<40)
		}
		uniq, idx = d.build(long)
		if len(uniq) != 700 || idx[699] != 699 || idx[700] != 0 || idx[999] != 299 || uniq[3] != 3<<40 {
			t.Errorf("got %d distinct values", len(uniq))
		}
		if uniq, idx := d.build(nil); len(uniq) != 0 || len(idx) != 0 {
			t.Errorf("nothing: got %v, %v", uniq, idx)
		}
	}
	var s strDict
	uniq, idx := s.build([]string{"b", "a", "b", "", "a", ""})
	if !slices.Equal(uniq, []string{"b", "a", ""}) || !slices.Equal(idx, []int32{0, 1, 0, 2, 1, 2}) {
		t.Errorf("got %q, %v", uniq, idx)
	}
	text := "abcdef" // texts that begin at one place in memory
	if uniq, idx := s.build([]string{text[:3], text, text[:3], text[:2], text}); !slices.Equal(uniq, []string{"abc", "abcdef", "ab"}) || !slices.Equal(idx, []int32{0, 1, 0, 2, 1}) {
		t.Errorf("beginnings of one text: got %q, %v", uniq, idx)
	}
	// Of the first 1,025 strings more than 512 are distinct: no dictionary. Of 512 it is written.
	for distinct, pays := range map[int]bool{512: true, 513: false} {
		var list []string
		for i := range 1025 {
			list = append(list, fmt.Sprint(i%distinct))
		}
		if uniq, idx := s.build(list); (idx != nil) != pays || pays && len(uniq) != distinct {
			t.Errorf("%d distinct strings: got %d and places %v", distinct, len(uniq), idx != nil)
		}
	}
}

// TestDataPagesByHand: the levels and values of a page, and what is refused.
func TestDataPagesByHand(t *testing.T) {
	two := leaf{physical: parquet.Types.Int64, maxDef: 1}
	for name, c := range map[string]struct {
		h    pageHeader
		l    leaf
		data []byte
		err  string
	}{
		"plain, no levels":          {pageHeader{values: 3}, leaf{}, nil, ""},
		"levels":                    {pageHeader{values: 3, defEncoding: encRuns}, two, []byte{2, 0, 0, 0, 6, 1}, ""},
		"levels cut":                {pageHeader{defEncoding: encRuns}, two, []byte{3, 0, 0, 0, 6, 1}, errShort.Error()},
		"levels without length":     {pageHeader{defEncoding: encRuns}, two, []byte{3, 0, 0}, errShort.Error()},
		"levels in another way":     {pageHeader{defEncoding: 4}, two, []byte{2, 0, 0, 0, 6, 1}, "levels of encoding 4, want RLE"},
		"indices":                   {pageHeader{encoding: encRef}, leaf{}, []byte{3, 1}, ""},
		"indices, as old writers":   {pageHeader{encoding: encPlainRef}, leaf{}, []byte{32, 1}, ""},
		"indices of too many bits":  {pageHeader{encoding: encRef}, leaf{}, []byte{33, 1}, "indices of 33 bits, want at most 32"},
		"a page of nulls":           {pageHeader{encoding: encRef}, leaf{}, nil, ""},
		"booleans in runs":          {pageHeader{encoding: encRuns}, leaf{physical: parquet.Types.Boolean}, []byte{0, 0, 0, 0}, ""},
		"booleans without a length": {pageHeader{encoding: encRuns}, leaf{physical: parquet.Types.Boolean}, []byte{0, 0, 0}, "want PLAIN or RLE_DICTIONARY"},
		"numbers in runs":           {pageHeader{encoding: encRuns}, leaf{physical: parquet.Types.Int64}, []byte{0, 0, 0, 0}, "got the encoding RLE"},
	} {
		ch := chunk{leaf: c.l}
		err := ch.data(&c.h, c.data)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got %v, want %q", name, err, c.err)
		}
		isRef := c.h.encoding == encRef || c.h.encoding == encPlainRef
		if err == nil && (ch.isRef != isRef || ch.left != int(c.h.values) || isRef && len(c.data) > 0 && ch.refs.width != int(c.data[0])) {
			t.Errorf("%s: got %+v", name, ch)
		}
	}
	// A page of version 2 has its levels first: repetition, then definition, then the values.
	ch := chunk{leaf: leaf{physical: parquet.Types.Int64, maxDef: 3, maxRep: 1}}
	if err := ch.data(&pageHeader{kind: pageDataV2, values: 2, repBytes: 2, defBytes: 3}, []byte{1, 2, 3, 4, 5, 6, 7}); err != nil ||
		!bytes.Equal(ch.reps.b, []byte{1, 2}) || !bytes.Equal(ch.defs.b, []byte{3, 4, 5}) || !bytes.Equal(ch.plain.b, []byte{6, 7}) || ch.reps.width != 1 || ch.defs.width != 2 {
		t.Errorf("got %+v, %v", ch, err)
	}
	// Dictionaries: as many values as their bytes can hold.
	for _, c := range []struct {
		l      leaf
		values int64
		data   []byte
		enc    int64
		err    bool
	}{
		{leaf{physical: parquet.Types.Boolean}, 2, []byte{1, 0}, encPlain, false},
		{leaf{physical: parquet.Types.Boolean}, 3, []byte{1, 0}, encPlain, true},
		{leaf{physical: parquet.Types.ByteArray}, 2, make([]byte, 8), encPlainRef, false},
		{leaf{physical: parquet.Types.ByteArray}, 2, make([]byte, 7), encPlain, true},
		{leaf{physical: parquet.Types.ByteArray}, 1, make([]byte, 8), encRef, true},
	} {
		ch := chunk{leaf: c.l}
		if v, err := ch.dictionary(&pageHeader{encoding: c.enc, values: c.values}, c.data); (err != nil) != c.err || err == nil && int64(len(v.texts)+len(v.bools)) != c.values {
			t.Errorf("%+v: got %v", c, err)
		}
	}
	// An index beyond the dictionary, of each type.
	for i, l := range []leaf{{physical: parquet.Types.Int64}, {physical: parquet.Types.Int32}, {physical: parquet.Types.Double}, {physical: parquet.Types.Boolean}, {physical: parquet.Types.ByteArray}} {
		ch := chunk{leaf: l, isRef: true, dict: values{ints: []int64{3, 4}, floats: []float64{.5, .25}, bools: []bool{true, false}, texts: []string{"x", "y"}}}
		ch.refs = runs{b: []byte{1 << 1, 1, 1 << 1, 0, 1 << 1, 2}, width: 2}
		if err := ch.readValues(2); err != nil {
			t.Error(err)
		}
		got := fmt.Sprint(ch.vals.ints, ch.vals.floats, ch.vals.bools, ch.vals.texts)
		if want := []string{"[4 3] [] [] []", "[4 3] [] [] []", "[] [0.25 0.5] [] []", "[] [] [false true] []", "[] [] [] [y x]"}[i]; got != want {
			t.Errorf("type %v: got %s, want %s", l.physical, got, want)
		}
		if err := ch.readValues(1); err == nil || !strings.Contains(err.Error(), "beyond its dictionary") {
			t.Errorf("type %v: got %v", l.physical, err)
		}
		if err := ch.readValues(1); !errors.Is(err, errShort) {
			t.Errorf("type %v: got %v", l.physical, err)
		}
	}
	if got := resize(make([]int, 2, 5), 5); len(got) != 5 || cap(got) != 5 {
		t.Errorf("got %d of %d", len(got), cap(got))
	}
	if got := resize(make([]int, 2, 5), 6); len(got) != 6 {
		t.Errorf("got %d", len(got))
	}
}

// TestListLevelsByHand: rows [a b], [] and [c], read two at a time.
func TestListLevelsByHand(t *testing.T) {
	ch := chunk{leaf: leaf{maxDef: 3, maxRep: 1, elemDef: 2}, left: 4,
		reps: runs{b: []byte{3, 0b0010}, width: 1}, defs: runs{b: []byte{3, 0b11_01_11_11, 0}, width: 2}}
	row := -1
	if known, err := ch.listLevels(&row, 2); err != nil || known != 2 || row != 1 || !ch.ahead || !slices.Equal(ch.def, []int32{3, 3, 1}) || !slices.Equal(ch.rep, []int32{0, 1, 0}) {
		t.Errorf("got %d values to row %d, %v: %v and %v", known, row, err, ch.rep, ch.def)
	}
	row = -1
	if known, err := ch.listLevels(&row, 1); err != nil || known != 1 || row != 0 || ch.ahead || ch.left != 0 {
		t.Errorf("got %d values to row %d, %v", known, row, err)
	}
	for name, c := range map[string]struct {
		reps, defs byte
		err        string
	}{
		"belongs to no row": {1, 3, "belongs to no row"},
		"a null in a list":  {0, 2, "null in a list"},
	} {
		ch := chunk{leaf: leaf{maxDef: 3, maxRep: 1, elemDef: 2}, left: 1, reps: runs{b: []byte{1 << 1, c.reps}, width: 1}, defs: runs{b: []byte{1 << 1, c.defs}, width: 2}}
		row := -1
		if _, err := ch.listLevels(&row, 1); err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for _, short := range []chunk{{defs: runs{b: []byte{1 << 1, 3}, width: 2}}, {reps: runs{b: []byte{1 << 1, 0}, width: 1}}} {
		short.left = 1
		row := -1
		if n, err := short.listLevels(&row, 1); !errors.Is(err, errShort) || n != 0 {
			t.Errorf("got %d, %v", n, err)
		}
	}
}

// header is a page's header in Thrift's compact protocol, of fields by their numbers.
func header(t *testing.T, fields [][2]int64, inner int16, innerFields [][2]int64) []byte {
	t.Helper()
	buf := thrift.NewTMemoryBuffer()
	p := thrift.NewTCompactProtocolConf(buf, nil)
	ctx := t.Context()
	write := func(fields [][2]int64) {
		for _, f := range fields {
			if f[0] < 0 { // a boolean
				p.WriteFieldBegin(ctx, "", thrift.BOOL, int16(-f[0]))
				p.WriteBool(ctx, f[1] == 1)
				continue
			}
			p.WriteFieldBegin(ctx, "", thrift.I64, int16(f[0]))
			p.WriteI64(ctx, f[1])
		}
	}
	p.WriteStructBegin(ctx, "")
	write(fields)
	p.WriteFieldBegin(ctx, "", thrift.STRUCT, inner)
	p.WriteStructBegin(ctx, "")
	write(innerFields)
	p.WriteFieldStop(ctx)
	p.WriteStructEnd(ctx)
	p.WriteFieldStop(ctx)
	p.WriteStructEnd(ctx)
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// TestPageHeadersByHand: the fields of the three kinds of pages, and the largest sizes.
func TestPageHeadersByHand(t *testing.T) {
	for name, c := range map[string]struct {
		kind  int64
		inner int16
		in    [][2]int64
		want  pageHeader
	}{
		"data":       {0, 5, [][2]int64{{1, 11}, {2, 12}, {3, 13}, {4, 14}}, pageHeader{kind: 0, values: 11, encoding: 12, defEncoding: 13, repEncoding: 14}},
		"dictionary": {2, 7, [][2]int64{{1, 11}, {2, 12}, {-3, 1}}, pageHeader{kind: 2, values: 11, encoding: 12}},
		"version 2":  {3, 8, [][2]int64{{1, 11}, {2, 99}, {3, 98}, {4, 12}, {5, 15}, {6, 16}, {-7, 1}}, pageHeader{kind: 3, values: 11, encoding: 12, defBytes: 15, repBytes: 16}},
		"not packed": {3, 8, [][2]int64{{1, 11}, {4, 12}, {-7, 0}}, pageHeader{kind: 3, values: 11, encoding: 12, isPlain: true}},
	} {
		b := header(t, [][2]int64{{1, c.kind}, {2, 200}, {3, 100}}, c.inner, c.in)
		c.want.unpacked, c.want.packed = 200, 100
		h, n, err := readHeader(append(b, 7, 7, 7))
		if err != nil || n != len(b) || h != c.want {
			t.Errorf("%s: got %+v in %d bytes, %v, want %+v in %d", name, h, n, err, c.want, len(b))
		}
		if _, _, err := readHeader(b[:len(b)-1]); err == nil || !strings.Contains(err.Error(), "broken header") {
			t.Errorf("%s, a byte too few: got %v", name, err)
		}
	}
	for _, c := range []struct {
		outer, in [][2]int64
		ok        bool
	}{
		{[][2]int64{{2, maxPage}, {3, 0}}, [][2]int64{{1, math.MaxInt32}, {5, 0}, {6, 0}}, true},
		{[][2]int64{{2, maxPage + 1}, {3, 0}}, nil, false},
		{[][2]int64{{2, -1}, {3, 0}}, nil, false},
		{[][2]int64{{2, 0}, {3, -1}}, nil, false},
		{nil, [][2]int64{{1, math.MaxInt32 + 1}}, false},
		{nil, [][2]int64{{1, -1}}, false},
		{nil, [][2]int64{{5, -1}}, false},
		{nil, [][2]int64{{6, -1}}, false},
	} {
		_, _, err := readHeader(header(t, c.outer, 8, c.in))
		if (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), "its page claims") {
			t.Errorf("%+v: got %v", c, err)
		}
	}
}

// TestPagesUnpackByHand: sizes that a page states must be its own.
func TestPagesUnpackByHand(t *testing.T) {
	p := &pages{codec: packNone, packed: []byte{1, 2, 3}}
	if b, err := p.unpack(&pageHeader{packed: 3, unpacked: 3}); err != nil || len(b) != 3 {
		t.Errorf("got %v, %v", b, err)
	}
	if _, err := p.unpack(&pageHeader{packed: 3, unpacked: 4}); err == nil || !strings.Contains(err.Error(), "its page has 3 bytes, want 4") {
		t.Errorf("got %v", err)
	}
	for _, h := range []pageHeader{
		{kind: pageDataV2, defBytes: 2, repBytes: 2, packed: 3, unpacked: 9},
		{kind: pageDataV2, defBytes: 2, repBytes: 2, packed: 9, unpacked: 3},
	} {
		if _, err := p.unpack(&h); !errors.Is(err, errShort) {
			t.Errorf("%+v: got %v", h, err)
		}
	}
	if b, err := p.unpack(&pageHeader{kind: pageDataV2, defBytes: 2, repBytes: 1, packed: 3, unpacked: 3}); err != nil || len(b) != 3 {
		t.Errorf("levels alone: got %v, %v", b, err)
	}
	p.codec = 77
	if _, err := p.unpack(&pageHeader{packed: 3, unpacked: 4}); err == nil || !strings.Contains(err.Error(), "codec 77") {
		t.Errorf("got %v", err)
	}
	if b, err := p.unpack(&pageHeader{kind: pageDataV2, packed: 3, unpacked: 3, isPlain: true}); err != nil || len(b) != 3 {
		t.Errorf("not packed: got %v, %v", b, err)
	}
}

// TestArrowLimitsByHand: what an Arrow file may claim.
func TestArrowLimitsByHand(t *testing.T) {
	m := boundedMemory{memory.DefaultAllocator, 100}
	for size, ok := range map[int]bool{-1: false, 0: true, 100: true, 101: false} {
		func() {
			defer func() {
				if r := recover(); (r == nil) != ok {
					t.Errorf("%d bytes: got %v", size, r)
				}
			}()
			m.checkSize(size)
		}()
	}
	for _, f := range []func(){func() { m.Allocate(101) }, func() { m.Reallocate(101, nil) }} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("101 bytes of 100 are reserved")
				}
			}()
			f()
		}()
	}
	for id := range byte(30) {
		if got, want := plainArrow(id), id != 14 && id <= 21; got != want {
			t.Errorf("type %d: got %v", id, got)
		}
	}
	for text, want := range map[string]string{"": "no Arrow file", "ARROW1": "no Arrow file", "\x00\x00\x00\x00ARROW2": "no Arrow file",
		"\x01\x00\x00\x00ARROW1": "its footer is longer than the file"} {
		if err := checkFooter(strings.NewReader(text), int64(len(text))); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	s := &countingSeeker{w: &bytes.Buffer{}}
	s.Write([]byte("abc"))
	if n, err := s.Seek(0, 1); n != 3 || err != nil || s.Tell() != 3 {
		t.Errorf("got %d, %v", n, err)
	}
	for _, c := range [][2]int64{{1, 1}, {0, 0}, {0, 2}} {
		if n, err := s.Seek(c[0], int(c[1])); err == nil || n != 0 {
			t.Errorf("%v: got %d, %v", c, n, err)
		}
	}
	// Integers of any width.
	for i, c := range []struct {
		t    arrow.DataType
		want []int64
	}{{arrow.PrimitiveTypes.Int8, []int64{-3, 7}}, {arrow.PrimitiveTypes.Int16, []int64{-3, 7}}, {arrow.PrimitiveTypes.Int32, []int64{-3, 7}},
		{arrow.PrimitiveTypes.Uint8, []int64{3, 7}}, {arrow.PrimitiveTypes.Uint16, []int64{3, 7}}, {arrow.PrimitiveTypes.Uint32, []int64{3, 7}}, {arrow.PrimitiveTypes.Uint64, []int64{3, math.MaxInt64}}} {
		b := array.NewBuilder(memory.DefaultAllocator, c.t)
		for _, v := range c.want {
			if err := b.AppendValueFromString(fmt.Sprint(v)); err != nil {
				t.Fatal(i, err)
			}
		}
		f, err := integers(b.NewArray())
		if err != nil || f(0) != c.want[0] || f(1) != c.want[1] {
			t.Errorf("%s: got %v", c.t, err)
		}
	}
	b := array.NewUint64Builder(memory.DefaultAllocator)
	b.AppendNull()
	b.Append(math.MaxInt64 + 1)
	if _, err := integers(b.NewArray()); err == nil || !strings.Contains(err.Error(), "got 9223372036854775808, want at most 9223372036854775807") {
		t.Errorf("got %v", err)
	}
	if _, err := integers(array.NewFloat64Builder(memory.DefaultAllocator).NewArray()); err == nil {
		t.Error("numbers with a fraction are taken for integers")
	}
}

// TestOrderByHand: of each table two rows in order, alike, and in the wrong order.
func TestOrderByHand(t *testing.T) {
	step := func(id int64) *trace.Step { return &trace.Step{ID: id} }
	snap := func(id int64) *trace.Snapshot { return &trace.Snapshot{StepID: id} }
	pass := func(id int64) *trace.Iteration { return &trace.Iteration{Index: id} }
	event := func(id string) *trace.JourneyEvent { return &trace.JourneyEvent{CoreID: id} }
	request := func(arrived, queued int64) *trace.Request {
		r := &trace.Request{CoreID: trace.Some("r")}
		if arrived > 0 {
			r.ArrivedNs = trace.Some(arrived)
		}
		if queued > 0 {
			r.QueuedNs = trace.Some(queued)
		}
		return r
	}
	for name, c := range map[string]struct{ got, want string }{
		"steps":                 {disorder(step(1), step(2)), ""},
		"one step twice":        {disorder(step(2), step(2)), "column step_id: got 2 after 2"},
		"steps back":            {disorder(step(3), step(2)), "column step_id: got 2 after 3"},
		"snapshots":             {disorder(snap(2), snap(2)), ""},
		"snapshots back":        {disorder(snap(3), snap(2)), "column step_id: got 2 after 3"},
		"passes":                {disorder(pass(1), pass(2)), ""},
		"one pass twice":        {disorder(pass(2), pass(2)), "column iteration: got 2 after 2"},
		"passes back":           {disorder(pass(3), pass(2)), "column iteration: got 2 after 3"},
		"events":                {disorder(event("a"), event("a")), ""},
		"events back":           {disorder(event("b"), event("a")), `column core_id: got "a" after "b"`},
		"requests":              {disorder(request(1, 9), request(2, 3)), ""},
		"requests back":         {disorder(request(2, 3), request(1, 9)), `column arrived_ns: got request "r" after a later one`},
		"by queueing":           {disorder(request(1, 3), request(1, 9)), ""},
		"by queueing, back":     {disorder(request(1, 9), request(1, 3)), "column arrived_ns"},
		"unknown last":          {disorder(request(1, 0), request(0, 3)), ""},
		"unknown first":         {disorder(request(0, 3), request(1, 0)), "column arrived_ns"},
		"without a stamp":       {disorder(request(0, 0), request(0, 0)), ""},
		"a table without order": {disorder(&trace.LoadPoint{}, &trace.LoadPoint{}), ""},
	} {
		if (c.want == "") != (c.got == "") || !strings.HasPrefix(c.got, c.want) {
			t.Errorf("%s: got %q, want %q", name, c.got, c.want)
		}
	}
	for _, table := range Tables {
		for suffix, want := range map[string]bool{".parquet": true, ".arrow": true, ".csv": false, "": false} {
			if got := IsFile(table.Name + suffix); got != want {
				t.Errorf("%s%s: got %v", table.Name, suffix, got)
			}
		}
	}
	if IsFile("x.parquet") || IsFile("parquet") {
		t.Error("a file of another name is called a table")
	}
}

// TestSmallTablesByHand: the runs, the rows and the tables of a folder.
func TestSmallTablesByHand(t *testing.T) {
	out := t.TempDir()
	for _, id := range []string{"b", "a"} {
		if err := os.MkdirAll(RunDir(out, id), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(out, "tables", "run=file"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if ids, err := RunIDs(out); err != nil || !slices.Equal(ids, []string{"a", "b"}) {
		t.Errorf("got %v, %v", ids, err)
	}
	if ids, err := RunIDs(filepath.Join(out, "nothing")); trace.CodeOf(err) != CodeNoTables || ids != nil {
		t.Errorf("got %v, %v", ids, err)
	}
	if _, err := RunIDs(filepath.Join(out, "tables", "run=file")); err == nil || trace.CodeOf(err) == CodeNoTables {
		t.Errorf("a file in place of a folder: got %v", err)
	}
	dir := RunDir(out, "a")
	for name, err := range map[string]error{
		Requests: Write(dir, Requests, Parquet, []trace.Request{{CoreID: trace.Some("r")}}), Steps: Write(dir, Steps, Parquet, []trace.Step{{ID: 1}, {ID: 2}}),
		JourneyEvents: Write(dir, JourneyEvents, Parquet, []trace.JourneyEvent{{CoreID: "r"}}), Snapshots: Write(dir, Snapshots, Parquet, []trace.Snapshot{{StepID: 1}, {StepID: 1}, {StepID: 2}}),
		KVEvents: Write(dir, KVEvents, Parquet, make([]trace.KVEvent, 4)), ObservedRequests: Write(dir, ObservedRequests, Parquet, make([]trace.ObservedRequest, 5)),
		Iterations: Write(dir, Iterations, Arrow, []trace.Iteration{{Index: 1}, {Index: 2}}), Points: Write(dir, Points, Parquet, make([]trace.LoadPoint, 7)),
	} {
		if err != nil {
			t.Fatal(name, err)
		}
	}
	count := func(r *trace.Run) [8]int {
		return [8]int{len(r.Requests), len(r.Events), len(r.Steps), len(r.Snapshots), len(r.KVEvents), len(r.Observed), len(r.Iterations), len(r.Points)}
	}
	run, err := Read(dir)
	if err != nil || run.ID != "a" || run.Stored != nil || count(run) != [8]int{1, 1, 2, 3, 4, 5, 2, 7} {
		t.Errorf("got %v of %q, %v", count(run), run.ID, err)
	}
	if run, err = Read(dir, Steps, Points); err != nil || count(run) != [8]int{2: 2, 7: 7} {
		t.Errorf("got %v, %v", count(run), err)
	}
	if run, err = ReadLean(dir); err != nil || count(run) != [8]int{1, 0, 2, 0, 4, 5, 2, 7} {
		t.Errorf("got %v, %v", count(run), err)
	}
	if run, err = ReadLean(dir, JourneyEvents); err != nil || count(run) != [8]int{1, 1, 2, 0, 4, 5, 2, 7} {
		t.Fatalf("got %v, %v", count(run), err)
	}
	stored, err := run.Stored()
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for stored.Next() {
		rows++
	}
	if rows != 3 || stored.Close() != nil {
		t.Errorf("got %d stored snapshots", rows)
	}
	for name, want := range map[string]int{Steps: 2, Snapshots: 3, Points: 7, Iterations: 0, "nothing": 0} { // an Arrow file does not say
		if got := Len[trace.Step](dir, name); name == Steps && got != want {
			t.Errorf("%s: got %d rows", name, got)
		}
		n, err := CountRows(filepath.Join(dir, name+".parquet"), name)
		if want > 0 && (n != int64(want) || err != nil) || want == 0 && err == nil {
			t.Errorf("%s: counted %d, %v", name, n, err)
		}
	}
	if n := Len[trace.Iteration](dir, Iterations); n != 0 {
		t.Errorf("an Arrow file: got %d rows", n)
	}
	// What cannot be read is an error, and no run.
	if err := os.WriteFile(filepath.Join(dir, "steps.parquet"), []byte("PAR1 nothing PAR1"), 0o666); err != nil {
		t.Fatal(err)
	}
	if run, err := Read(dir); err == nil || run != nil {
		t.Errorf("got %v, %v", run, err)
	}
	if run, err := ReadLean(dir); err == nil || run != nil {
		t.Errorf("got %v, %v", run, err)
	}
	if n, err := CountRows(filepath.Join(dir, "steps.parquet"), Steps); err == nil || n != 0 {
		t.Errorf("got %d, %v", n, err)
	}
}

// TestSlicesByHand: when requests have left, which of a stream have come, and which row groups hold steps.
func TestSlicesByHand(t *testing.T) {
	at := func(ns int64) trace.Opt[int64] { return trace.Some(ns) }
	for name, c := range map[string]struct {
		r    trace.Request
		want int64
	}{
		"finished":                 {trace.Request{CoreID: trace.Some("a"), FinishedNs: at(5), DepartedNs: at(3)}, 5},
		"departed":                 {trace.Request{CoreID: trace.Some("a"), FinishedNs: at(5), DepartedNs: at(7), AbortedNs: at(6)}, 7},
		"aborted":                  {trace.Request{CoreID: trace.Some("a"), FinishedNs: at(5), AbortedNs: at(9)}, 9},
		"not finished":             {trace.Request{CoreID: trace.Some("a"), DepartedNs: at(7)}, math.MaxInt64},
		"not finished in the API":  {trace.Request{DepartedNs: at(7)}, 7},
		"nothing known in the API": {trace.Request{}, math.MaxInt64},
	} {
		if got := leftNs(&c.r); got != c.want {
			t.Errorf("%s: got %d", name, got)
		}
	}
	dir := t.TempDir()
	if err := Write(dir, Requests, Parquet, []trace.Request{{CoreID: trace.Some("a"), ArrivedNs: at(10)}, {CoreID: trace.Some("b"), ArrivedNs: at(20)}, {CoreID: trace.Some("c"), ArrivedNs: at(30)}, {QueuedNs: at(40)}}); err != nil {
		t.Fatal(err)
	}
	of, err := Open[trace.Request](dir, Requests)
	if err != nil {
		t.Fatal(err)
	}
	defer of.Close()
	q := &stream{of: of, mine: func(r *trace.Request) bool { return r.ArrivedNs.OK }}
	for _, c := range []struct {
		ns   int64
		want int
	}{{9, 0}, {10, 1}, {19, 1}, {20, 2}, {1000, 3}, {1000, 3}} {
		if err := q.readUntil(c.ns); err != nil || len(q.live) != c.want {
			t.Errorf("until %d: got %d requests, %v, want %d", c.ns, len(q.live), err, c.want)
		}
	}
	// Steps 0 to 9 in slices of four with two around them: the requests of each, and of a slice's own the steps until they end.
	run := RunDir(t.TempDir(), "x")
	var steps []trace.Step
	var snaps []trace.Snapshot
	var events []trace.KVEvent
	for i := range int64(11) {
		steps = append(steps, trace.Step{ID: i, TsStartNs: 7 + 100*i})
		snaps = append(snaps, trace.Snapshot{StepID: i})
		events = append(events, trace.KVEvent{Step: trace.Some(i)})
	}
	events = append(events, trace.KVEvent{})
	request := func(id string, arrived, finished int64) trace.Request {
		return trace.Request{CoreID: trace.Some(id), ArrivedNs: at(arrived), QueuedNs: at(arrived), FinishedNs: at(finished), PromptTokens: at(5)}
	}
	requests := []trace.Request{request("a", 50, 150), request("b", 350, 750), request("c", 450, 499), request("d", 1000, 1050)}
	if err := errors.Join(Write(run, Steps, Parquet, steps), Write(run, Snapshots, Parquet, snaps), Write(run, KVEvents, Parquet, events), Write(run, Requests, Parquet, requests)); err != nil {
		t.Fatal(err)
	}
	var got []string
	if err := EachSlice(run, 4, 2, 1, func(_ int, r *trace.Run) error {
		var ids []string
		for _, q := range r.Requests {
			ids = append(ids, q.CoreID.V)
		}
		c, err := r.Stored()
		if err != nil {
			return err
		}
		n := 0
		for c.Next() {
			n++
		}
		got = append(got, fmt.Sprintf("%d-%d of %d-%d: steps %d-%d, %v, %d snapshots, %d events", r.Slice.FromNs, r.Slice.ToNs, r.Slice.FirstNs, r.Slice.LastNs,
			r.Steps[0].ID, r.Steps[len(r.Steps)-1].ID, ids, n, len(r.KVEvents)))
		return c.Close()
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"-9223372036854775808-407 of 7-1007: steps 0-7, [a b c], 8 snapshots, 8 events", // b ends in step 7
		"407-807 of 7-1007: steps 2-9, [b c], 8 snapshots, 8 events",
		"807-9223372036854775807 of 7-1007: steps 6-10, [b d], 5 snapshots, 5 events",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s, want\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	spans := []stepSpan{{0, 3}, {4, 7}, {math.MaxInt64, math.MinInt64}}
	c, err := openSteps[trace.Step](run, Steps, spans, 3, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	skip := c.rows.(*parquetRows[trace.Step]).skip
	if skip(0) || !skip(1) || !skip(2) || skip(3) {
		t.Errorf("step 3: skips %v, %v, %v, %v", skip(0), skip(1), skip(2), skip(3))
	}
	c4, err := openSteps[trace.Step](run, Steps, spans, 4, 4)
	if err != nil {
		t.Fatal(err)
	}
	defer c4.Close()
	if skip := c4.rows.(*parquetRows[trace.Step]).skip; !skip(0) || skip(1) {
		t.Error("step 4: the wrong row groups are skipped")
	}
	if got, err := groupSpans(run, KVEvents, func(r *struct {
		Step trace.Opt[int64] `col:"step"`
	}) trace.Opt[int64] {
		return r.Step
	}); err != nil || !slices.Equal(got, []stepSpan{{0, 10}}) {
		t.Errorf("got %v, %v", got, err)
	}
}
