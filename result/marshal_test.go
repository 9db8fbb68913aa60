package result

import "testing"

// TestMarshalKeepsSigns: <, > and & are written as they are, indented by two spaces.
func TestMarshalKeepsSigns(t *testing.T) {
	b, err := Marshal(map[string]string{"a": "x < y & z > w"})
	if want := "{\n  \"a\": \"x < y & z > w\"\n}\n"; err != nil || string(b) != want {
		t.Errorf("got %q and %v, want %q", b, err, want)
	}
}
