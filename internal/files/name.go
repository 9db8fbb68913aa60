package files

// This file makes names of files from texts of users.

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/zeebo/xxh3"
)

// longestName is the length of a name, in bytes, above which ShortName shortens it. File systems allow 255 bytes and
// encrypted ones 143, and the program adds endings.
const longestName = 100

// ShortName returns a name that is short enough for a file or folder: that of at most 100 bytes itself, of a longer one
// the beginning and a hash of the whole, so that two long names differ.
func ShortName(name string) string {
	if len(name) <= longestName {
		return name
	}
	return fmt.Sprintf("%s-%08x", strings.ToValidUTF8(name[:longestName], ""), uint32(xxh3.HashString(name)))
}

// IsName reports whether a text can be the name of one file or folder on Linux, macOS and Windows: no path, no control
// character, none of the names that Windows reserves.
func IsName(name string) bool {
	if name == "" || name != ShortName(name) || strings.ContainsAny(name, `/\:*?"<>|`) || strings.TrimRight(name, ". ") != name {
		return false
	}
	for _, r := range name {
		if r < ' ' || r == '\x7f' {
			return false
		}
	}
	device, _, _ := strings.Cut(strings.ToUpper(name), ".")
	switch device {
	case "CON", "PRN", "AUX", "NUL":
		return false
	}
	numbered := len(device) == 4 && (strings.HasPrefix(device, "COM") || strings.HasPrefix(device, "LPT"))
	return !(numbered && device[3] >= '0' && device[3] <= '9') && filepath.IsLocal(name)
}
