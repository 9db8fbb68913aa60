package report

import "strings"

// maxText is the most bytes of one string on the page: enough for a
// sentence, a path or a command, not for a hostile one.
const maxText = 1200

func limited(s string) string {
	if len(s) <= maxText {
		return printable(s)
	}
	return printable(strings.ToValidUTF8(s[:maxText], "")) + "…"
}

func limitAll(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = limited(s)
	}
	return out
}

// printable drops what XML 1.0 cannot hold and bidirectional overrides, which
// would let a run's name rewrite the words around it.
func printable(s string) string {
	out := make([]rune, 0, len(s))
	for _, r := range s {
		switch {
		case r == '\t' || r == '\n':
			out = append(out, ' ')
		case r < 0x20 || r == 0x7f || r == 0xfffe || r == 0xffff || (r >= 0x202a && r <= 0x202e) || (r >= 0x2066 && r <= 0x2069):
			out = append(out, '\uFFFD')
		default:
			out = append(out, r)
		}
	}
	return string(out)
}
