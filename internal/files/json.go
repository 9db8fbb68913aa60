package files

import (
	"encoding/json"
	"fmt"
)

// WriteJSON writes a value for ReadJSON to read, on one line.
func WriteJSON(name string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return Write(name, text)
}

// ReadJSON reads what WriteJSON wrote.
func ReadJSON(name string, v any) error {
	text, err := ReadAll(name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
