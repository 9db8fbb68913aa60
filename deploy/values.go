package deploy

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// Values are settings that nobody reads by type. Their whole numbers stay whole through JSON:
// a wall-clock stamp in nanoseconds has more digits than a float64 holds.
type Values map[string]any

// UnmarshalJSON reads an object.
func (v *Values) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var all map[string]any
	if err := d.Decode(&all); err != nil {
		return err
	}
	for key, value := range all {
		all[key] = whole(value)
	}
	*v = all
	return nil
}

// whole is what YAML makes of a value that came with its digits.
func whole(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			v[key] = whole(value)
		}
	case []any:
		for i, value := range v {
			v[i] = whole(value)
		}
	case json.Number:
		if n, err := strconv.Atoi(v.String()); err == nil {
			return n
		}
		if n, err := strconv.ParseUint(v.String(), 10, 64); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	}
	return v
}
