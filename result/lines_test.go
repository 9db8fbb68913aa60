package result

import (
	"bytes"
	"encoding/json"
	"testing"
)

// TestOnLines: lists of numbers stand on one line, nothing else moves, and the values
// stay.
func TestOnLines(t *testing.T) {
	text := []byte(`{
  "text": "[ 1,\n \"2 ]",
  "curve": [
    [
      0.5,
      -1e-9
    ],
    [
      1,
      null
    ]
  ],
  "none": [],
  "names": [
    "a"
  ],
  "list": [
    {
      "x": [
        1,
        2
      ]
    }
  ]
}
`)
	want := `{
  "text": "[ 1,\n \"2 ]",
  "curve": [[0.5, -1e-9], [1, null]],
  "none": [],
  "names": [
    "a"
  ],
  "list": [
    {
      "x": [1, 2]
    }
  ]
}
`
	got := onLines(text)
	if string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
	var a, b bytes.Buffer
	if json.Compact(&a, text) != nil || json.Compact(&b, got) != nil || a.String() != b.String() {
		t.Error("values differ")
	}
}

// TestValidationIsShort: its curves are lines, its digest holds, and it is read back.
func TestValidationIsShort(t *testing.T) {
	v := &Validation{Runs: []ValidationRun{{Drift: []DriftPoint{}}}}
	b, err := Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, onLines(b)) || !Intact(b) {
		t.Error("got lists of several lines, or another digest")
	}
}
