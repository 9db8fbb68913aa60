package result

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// TestDigestBindsADocument: every change of a value or a key is seen, another layout
// is not, and the digest does not depend on the one that was there before.
func TestDigestBindsADocument(t *testing.T) {
	doc := &Inspect{Header: NewHeader("1.2.3", "inspect"), Unfit: []string{"a \n  \"document_digest\": \"\" b"}, Pass: true}
	text, err := Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	var back Inspect
	if err := Read(text, &back); err != nil || len(back.Digest) != 64 || !Intact(text) {
		t.Fatalf("got %v, digest %q, intact %v\n%s", err, back.Digest, Intact(text), text)
	}
	if again, err := Marshal(&back); err != nil || !bytes.Equal(again, text) {
		t.Errorf("written again: %v\n%s", err, again)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil || !Intact(compact.Bytes()) {
		t.Errorf("compact: %v, intact %v", err, Intact(compact.Bytes()))
	}
	for _, edit := range [][2]string{{"1.2.3", "1.2.4"}, {"true", "false"}, {`"unfit"`, `"Unfit"`}, {back.Digest, strings.Repeat("0", 64)},
		{`"pass"`, `"pass": false, "pass"`}} {
		changed := strings.Replace(string(text), edit[0], edit[1], 1)
		if changed == string(text) || Intact([]byte(changed)) {
			t.Errorf("%s -> %s is not seen", edit[0], edit[1])
		}
	}
	if old := strings.Replace(string(text), back.Digest, "", 1); !Intact([]byte(old)) {
		t.Error("a document without a digest counts as changed")
	}
}
