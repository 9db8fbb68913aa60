package report

// This file writes the page from its sections. Every string may come from a recording, so all are
// escaped and limited, and a content security policy allows nothing but the page's own style and
// script.

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html"
	"html/template"
	"io"
	"reflect"
	"slices"
	"strings"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed style.css
	styleCSS string
	//go:embed page.js
	pageJS string
)

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{"prose": proseHTML, "plural": Plural}).Parse(pageHTML))

// proseHTML returns a sentence as HTML: escaped, with text between backticks as code.
func proseHTML(s string) template.HTML {
	parts := strings.Split(html.EscapeString(s), "`") // every second one is code
	if len(parts)%2 == 0 {                            // a backtick without its pair
		return template.HTML(strings.Join(parts, "`"))
	}
	var b strings.Builder
	for i, p := range parts {
		if i%2 == 1 {
			p = "<code>" + p + "</code>"
		}
		b.WriteString(p)
	}
	return template.HTML(b.String())
}

// Write writes a page with this head and these sections. The error is that of w or of the template.
func Write(w io.Writer, h Head, sections []Section) error {
	style := sheetCSS()
	p := page{
		Title:    "blis-train report",
		Policy:   contentPolicy(style, pageJS),
		Style:    template.CSS(style),
		Script:   template.JS(pageJS),
		Head:     h,
		Sections: sections,
	}
	p.limit()
	return pageTemplate.Execute(w, p)
}

// Page returns the page of the sections that have content, and those sections.
func Page(h Head, sections []Section) ([]byte, []Section, error) {
	sections = slices.DeleteFunc(sections, func(x Section) bool { return len(x.Blocks) == 0 && x.Missing == "" })
	var b bytes.Buffer
	err := Write(&b, h, sections)
	return b.Bytes(), sections, err
}

// sheetCSS returns the style sheet with the light and the dark colours.
func sheetCSS() string {
	light, dark := cssVars(false), cssVars(true)
	return ":root{color-scheme:light;" + light + "}\n" + "@media (prefers-color-scheme:dark){:root{color-scheme:dark;" + dark + "}}\n" +
		":root[data-theme=light]{color-scheme:light;" + light + "}\n" +
		":root[data-theme=dark]{color-scheme:dark;" + dark + "}\n" +
		"@media print{:root,:root[data-theme]{color-scheme:light;" + light + "}}\n" +
		cssMarks() + styleCSS
}

// contentPolicy returns the content security policy of the page. It allows the page's own style and
// script, by hash, and nothing else, so that text from a recording can neither run code nor load
// anything.
func contentPolicy(style, script string) string {
	return "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; style-src '" +
		cspHash(style) + "'; script-src '" + cspHash(script) + "'"
}

// cspHash returns the hash of a script or style in the form of a content security policy.
func cspHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// page is the data of the template.
type page struct {
	Title    string
	Policy   string
	Style    template.CSS
	Script   template.JS
	Head     Head
	Sections []Section
}

// limit shortens every string of the page and removes characters that must not be in it. Line
// breaks in code stay. Text inside figures is limited when it is drawn.
func (p *page) limit() { limitStrings(reflect.ValueOf(p).Elem()) }

// limitStrings limits every string field below v.
func limitStrings(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		if v.CanSet() && v.Type() == reflect.TypeFor[string]() { // not template.HTML, CSS or JS
			v.SetString(limitText(v.String()))
		}
	case reflect.Slice:
		for i := range v.Len() {
			limitStrings(v.Index(i))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			limitStrings(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			limitStrings(v.Field(i))
		}
	}
}

// maxText is the largest number of bytes of one string on the page: enough for a sentence, a path
// or a command, not for a hostile one.
const maxText = 1200

// limitText returns a string shortened to maxText bytes and without forbidden characters.
func limitText(s string) string {
	if len(s) <= maxText {
		return printable(s)
	}
	return printable(strings.ToValidUTF8(s[:maxText], "")) + "…"
}

// printable returns a string in which characters that XML 1.0 does not allow, and bidirectional
// overrides, are replaced. With the latter a run's name could change how the text around it reads.
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
