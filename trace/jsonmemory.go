package trace

// This file bounds the memory that a JSON text takes when it is decoded.

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
)

// mostJSONBytes and bytesPerByte bound the memory of a decoded JSON text: 4 MiB, or four bytes for
// each of the text if that is more. A number takes eight bytes and at least two characters; documents
// of this program take less than one byte for each.
const (
	mostJSONBytes = 4 << 20
	bytesPerByte  = 4
)

// mostDepth is the depth of nesting that encoding/json accepts.
const mostDepth = 10_000

// CheckMemory returns an error if the values that json.Unmarshal would make of a text for v take far
// more memory than the text. In a list of structs every element takes the size of the struct, also
// {}, null and a number, behind which json.Unmarshal reads on to the end. The text need not be JSON.
func CheckMemory(text []byte, v any) error {
	if int64(len(text)) < mostJSONBytes/(4<<10) {
		return nil // even if every second byte became 8 KiB
	}
	most := max(mostJSONBytes, bytesPerByte*int64(len(text)))
	open := []container{{elem: reflect.TypeOf(v)}} // those around the current byte; the first is the text itself
	taken := int64(0)                              // bytes of the values up to the current byte
	for i := 0; i < len(text); i++ {
		top := &open[len(open)-1]
		switch c := text[i]; c {
		case '{', '[':
			if len(open) > mostDepth {
				return nil // json.Unmarshal refuses it before it decodes anything
			}
			inner := containerOf(c, top.elem)
			open = append(open, inner)
			taken += inner.size
			if c == '{' && top.fields != nil && top.elem != nil && top.elem.Kind() == reflect.Pointer {
				taken += sizeOf(top.elem.Elem()) // in a list it is part of the element's size
			}
		case '}', ']':
			if len(open) > 1 {
				open = open[:len(open)-1]
			}
		case ',': // one more value; the first one was counted with the bracket
			taken += top.size
			top.atKey = top.fields != nil
		case '"':
			from := i + 1
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			if top.atKey {
				top.atKey = false
				top.elem = top.fields[strings.ToLower(string(text[from:min(i, len(text))]))]
			}
		}
		if taken > most {
			line, col := Position(text, int64(i))
			return &SyntaxError{Line: line, Col: col, Msg: fmt.Sprintf(
				"got values that take more than %d MiB in memory from %s bytes of text", most>>20, Thousands(int64(len(text))))}
		}
	}
	return nil
}

// container is an object or a list that is open in the text.
type container struct {
	elem   reflect.Type            // of the value that comes next; nil for one that is skipped
	size   int64                   // bytes of each of its values; 0 for a struct, whose own size has them
	fields map[string]reflect.Type // of a struct, by lower-case key; nil for lists and maps
	atKey  bool                    // the next string is a key of fields
}

// containerOf returns the container that a bracket opens for a value of type t.
func containerOf(bracket byte, t reflect.Type) container {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return container{}
	}
	switch kind := t.Kind(); {
	case kind == reflect.Interface:
		// Maps and lists of any: a value takes two words, an entry of a map some more.
		return container{elem: t, size: 64}
	case bracket == '[' && (kind == reflect.Slice || kind == reflect.Array):
		return container{elem: t.Elem(), size: sizeOf(t.Elem())}
	case bracket == '{' && kind == reflect.Map:
		return container{elem: t.Elem(), size: sizeOf(t.Key()) + sizeOf(t.Elem())}
	case bracket == '{' && kind == reflect.Struct:
		return container{fields: fieldsOf(t), atKey: true}
	}
	return container{}
}

// sizeOf returns the bytes of a value in a list, with those of what it points to.
func sizeOf(t reflect.Type) int64 {
	size := int64(t.Size())
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
		size += int64(t.Size())
	}
	return size
}

// structFields has the result of fieldsOf by type.
var structFields sync.Map

// fieldsOf returns the types of a struct's fields by lower-case key, because encoding/json compares
// keys without case. A value behind an unknown key is skipped.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	if known, ok := structFields.Load(t); ok {
		return known.(map[string]reflect.Type)
	}
	fields := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			name = f.Name
		}
		fields[strings.ToLower(name)] = f.Type
	}
	structFields.Store(t, fields)
	return fields
}
