package features

import (
	"strconv"
	"strings"
)

// This file prints formulas with numbers. Formulas are expressions in Go's syntax over inputs, constants
// and earlier slots, with the functions max, min, ln, pos(x) (1 when x > 0, else 0) and those of the
// space: expert_share(tokens), expert_layers(tokens), experts_touched(tokens), weight_bytes(tokens,
// sequences), prompt_attention_s(tokens), all_reduce_s(tokens), logits_gather_s(sequences) and
// gate(running, usage). The explain command prints them, and a test evaluates each against the function
// it describes.

// scope has the values of the names in a formula.
type scope struct {
	space  *Space
	values map[string]float64
}

// numbers returns a formula with every name replaced by its value.
func (sc *scope) numbers(formula string) string {
	var b strings.Builder
	for i := 0; i < len(formula); {
		word := identifier(formula[i:])
		if word == "" {
			b.WriteByte(formula[i])
			i++
			continue
		}
		i += len(word)
		isFunction := i < len(formula) && formula[i] == '('
		if v, ok := sc.values[word]; ok && !isFunction {
			b.WriteString(strconv.FormatFloat(v, 'g', 6, 64))
		} else {
			b.WriteString(word)
		}
	}
	return b.String()
}

// identifier returns the name or number at the start of text, "" for neither. A number is read
// whole, so that the e of "1e-6" is not mistaken for a name.
func identifier(text string) string {
	n := 0
	for n < len(text) {
		c := text[n]
		isLetter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		isDigit := c >= '0' && c <= '9' || c == '.'
		isExponent := n > 0 && c == '-' && text[n-1] == 'e' && text[0] >= '0' && text[0] <= '9'
		if !isLetter && !isDigit && !isExponent {
			break
		}
		n++
	}
	return text[:n]
}
