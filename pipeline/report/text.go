package report

import "strings"

// textWidth estimates the width of text in pixels; a bit generous, since
// fonts differ.
func textWidth(text string, size float64) float64 {
	w := 0.0
	for _, r := range text {
		switch {
		case r == 'i' || r == 'l' || r == '.' || r == ',' || r == ' ' || r == ':' || r == 'j' || r == 't' || r == 'f':
			w += 0.32
		case r == 'm' || r == 'w' || r == 'M' || r == 'W':
			w += 0.86
		case r >= 'A' && r <= 'Z':
			w += 0.68
		default:
			w += 0.61
		}
	}
	return w * size
}

// clip shortens text to about width pixels, keeping both ends, where run
// names differ. Its cost does not grow with the length of the text.
func clip(text string, size, width float64) string {
	if len(text) <= maxClip && textWidth(text, size) <= width {
		return text
	}
	r := []rune(ends(text))
	for keep := min(len(r)-1, maxClip); keep > 2; keep-- {
		head := keep * 3 / 5
		s := string(r[:head]) + "…" + string(r[len(r)-(keep-head):])
		if textWidth(s, size) <= width {
			return s
		}
	}
	return "…"
}

// maxClip is more bytes than any panel has room for.
const maxClip = 160

// ends returns the first and last bytes of a long text.
func ends(text string) string {
	if len(text) <= 2*maxClip {
		return text
	}
	return strings.ToValidUTF8(text[:maxClip], "") + strings.ToValidUTF8(text[len(text)-maxClip:], "")
}
