package result

// onLines is an indented JSON text with every list of numbers, and of lists of
// numbers, on one line: the curves of a validation are most of it otherwise.
func onLines(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		n := 0
		switch text[i] {
		case '"':
			n = stringEnd(text[i:])
		case '[':
			if n = numbersEnd(text[i:]); n > 0 {
				out = appendLine(out, text[i:i+n])
				i += n
				continue
			}
		}
		n = max(1, n)
		out = append(out, text[i:i+n]...)
		i += n
	}
	return out
}

// stringEnd is the length of the string that the text begins with.
func stringEnd(text []byte) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// numbersEnd is the length of the list that the text begins with, 0 for one that
// holds a string or an object, or nothing.
func numbersEnd(text []byte) int {
	depth, numbers := 0, false
	for i, c := range text {
		switch c {
		case '[':
			depth++
		case '"', '{':
			return 0
		case ']':
			if depth--; depth == 0 {
				if !numbers {
					return 0
				}
				return i + 1
			}
		case ' ', '\n', ',':
		default:
			numbers = true
		}
	}
	return 0
}

// appendLine appends a list without its line breaks.
func appendLine(to, list []byte) []byte {
	for _, c := range list {
		switch c {
		case ' ', '\n':
		case ',':
			to = append(to, ", "...)
		default:
			to = append(to, c)
		}
	}
	return to
}
