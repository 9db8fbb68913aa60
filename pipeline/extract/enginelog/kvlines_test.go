package enginelog

import (
	"context"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// TestKVLines: each kind of event with every field, shorter forms of older versions, and events whose fields do not
// fit their kind, which are counted as bad.
func TestKVLines(t *testing.T) {
	some := trace.Some[int64]
	text := trace.Some[string]
	for _, c := range []struct {
		event string
		want  trace.KVEvent
	}{
		{`["BlockStored",[18446744073709551615,"aGFzaA=="],7,[1,2],16,null,"GPU",null]`, trace.KVEvent{Kind: "BlockStored", Hashes: []string{"18446744073709551615", "aGFzaA=="},
			Parent: text("7"), BlockSize: some(16), SrcMedium: text("GPU"), BlockCount: some(2)}},
		{`["BlockStored",[1],"p",[],16]`, trace.KVEvent{Kind: "BlockStored", Hashes: []string{"1"}, Parent: text("p"), BlockSize: some(16), BlockCount: some(1)}},
		{`["BlockRemoved",[-5,6,8],"CPU"]`, trace.KVEvent{Kind: "BlockRemoved", Hashes: []string{"-5", "6", "8"}, SrcMedium: text("CPU"), BlockCount: some(3)}},
		{`["AllBlocksCleared"]`, trace.KVEvent{Kind: "AllBlocksCleared"}},
		{`["CacheLoadCommitted","r","CPU",3,9]`, trace.KVEvent{Kind: "CacheLoadCommitted", RequestID: text("r"), SrcMedium: text("CPU"), BlockCount: some(3), Step: some(9)}},
		{`["CacheStoreCommitted","r","CPU",3,9,"more"]`, trace.KVEvent{Kind: "CacheStoreCommitted", RequestID: text("r"), SrcMedium: text("CPU"), BlockCount: some(3), Step: some(9)}},
		{`["CacheEviction","CPU",2,"why",8,[4]]`, trace.KVEvent{Kind: "CacheEviction", SrcMedium: text("CPU"), BlockCount: some(2), Step: some(8), Hashes: []string{"4"}}},
		{`["TransferInitiated",11,"r","GPU","CPU",5,7]`, trace.KVEvent{Kind: "TransferInitiated", TransferID: some(11), RequestID: text("r"), SrcMedium: text("GPU"),
			DstMedium: text("CPU"), BlockCount: some(5), Step: some(7)}},
		{`["TransferCompleted",11,"r","GPU","CPU",5,false,7]`, trace.KVEvent{Kind: "TransferCompleted", TransferID: some(11), RequestID: text("r"), SrcMedium: text("GPU"),
			DstMedium: text("CPU"), BlockCount: some(5), Success: trace.Some(false), Step: some(7)}},
		{`["RemoteTransferInitiated",1,"r",{},[{}],null,5]`, trace.KVEvent{Kind: "RemoteTransferInitiated", TransferID: some(1), RequestID: text("r"), BlockCount: some(5)}},
		{`["RemoteTransferCompleted",1,"r",0,0,0,5,true]`, trace.KVEvent{Kind: "RemoteTransferCompleted", TransferID: some(1), RequestID: text("r"), BlockCount: some(5),
			Success: trace.Some(true)}},
		// Events that do not fit.
		{`["BlockStored"]`, trace.KVEvent{}}, {`["Unknown",1]`, trace.KVEvent{}}, {`["BlockStored",3]`, trace.KVEvent{}}, {`["BlockStored",[1.5]]`, trace.KVEvent{}},
		{`["BlockStored",[true]]`, trace.KVEvent{}}, {`["BlockStored",[1],true]`, trace.KVEvent{}}, {`["CacheEviction",3]`, trace.KVEvent{}},
		{`["CacheEviction","CPU","2"]`, trace.KVEvent{}}, {`["TransferCompleted",1,"r","GPU","CPU",5,1]`, trace.KVEvent{}}, {`["TransferInitiated",18446744073709551615]`, trace.KVEvent{}},
		{`["AllBlocksCleared"],["X"]`, trace.KVEvent{Kind: "AllBlocksCleared"}},
	} {
		out := NewKVDecoder().Records()
		out.Mark()
		if err := NewKVDecoder().Line([]byte("[12.5,["+c.event+"],3,null]"), out); err != nil {
			t.Errorf("%s: %v", c.event, err)
			continue
		}
		if c.want.Kind == "" {
			if len(out.Rows) != 0 || len(out.Bad) != 1 || !strings.Contains(out.Bad[0].What, c.event[1:6]) {
				t.Errorf("%s: got %+v and %v", c.event, out.Rows, out.Bad)
			}
			continue
		}
		c.want.Copies, c.want.WallS, c.want.DPRank = 1, 12.5, some(3)
		if len(out.Rows) != 1 || !reflect.DeepEqual(out.Rows[0], c.want) || len(out.Bad) != strings.Count(c.event, `"X"`) {
			t.Errorf("%s: got %+v, %v\nwant %+v", c.event, out.Rows, out.Bad, c.want)
		}
	}
	for line, want := range map[string]int{`[1,null,null]`: 0, `[1,[["AllBlocksCleared"],["AllBlocksCleared"]],null]`: 2, `[1,[["AllBlocksCleared"]]] x`: -1, `{}`: -1, `[1,[["AllBlocksCleared"`: -1} {
		out := NewKVDecoder().Records()
		err := NewKVDecoder().Line([]byte(line), out)
		if (err != nil) != (want < 0) || want >= 0 && (len(out.Rows) != want || want > 0 && out.Rows[0].DPRank.OK) {
			t.Errorf("%s: got %+v and %v", line, out.Rows, err)
		}
	}
}

// TestKVCollector: two workers write one transfer, which succeeded for one of them alone; a second transfer of other
// blocks is not a copy; an event outside its range and one that cannot be read are dropped.
func TestKVCollector(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "kv.jsonl")
	repo.Write(t, `[1.5,[["TransferCompleted",1,"r","GPU","CPU",5,true,7],["TransferCompleted",1,"r","GPU","CPU",5,false,7],["TransferCompleted",1,"r","GPU","CPU",6,true,7]],0]
[2.5,[["AllBlocksCleared"],["BlockRemoved",3],["CacheEviction","CPU",-1]],1]
[3.5,[["TransferInitiated",1,"r","GPU","CPU",5,7],["CacheEviction","CPU",4],["CacheEviction","CPU",4]],1]
`, name)
	in := []source.Input{{Path: name, Name: "kv.jsonl"}}
	acc := source.NewAccount(nil)
	k := NewKVCollector(in, acc, &source.Memory{Dir: dir, Limit: 1 << 20})
	how := source.Options{Workers: 1, Limits: source.Limits{MaxLine: 1 << 20, MaxExpansion: 100}, AnyText: true}
	if err := source.Stream(context.Background(), in, how, NewKVDecoder, k.Add); err != nil {
		t.Fatal(err)
	}
	if acc.Read != 9 || acc.Kept != 6 || acc.Dropped[source.CodeDuplicate] != 1 || acc.Dropped[source.CodeBadRecord] != 2 || in[0].Gave != 8 || acc.Lines != 3 {
		t.Errorf("got %d read, %d kept, %v dropped, %d given", acc.Read, acc.Kept, acc.Dropped, in[0].Gave)
	}
	out := filepath.Join(dir, "run")
	w, err := table.Create[trace.KVEvent](out, table.KVEvents, table.Parquet)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Write(w, func(ev *trace.KVEvent) bool { return ev.Kind != "AllBlocksCleared" }); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	run, err := table.Read(out, table.KVEvents)
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		kind           string
		blocks, copies int64
		success        bool
		line           int64
	}
	want := []row{{"TransferCompleted", 5, 2, false, 1}, {"TransferCompleted", 6, 1, true, 1}, {"TransferInitiated", 5, 1, false, 3}, {"CacheEviction", 4, 1, false, 3}, {"CacheEviction", 4, 1, false, 3}}
	var got []row
	for _, ev := range run.KVEvents {
		got = append(got, row{ev.Kind, ev.BlockCount.V, ev.Copies, ev.Success.V, ev.Line})
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
