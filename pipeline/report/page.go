package report

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html"
	"html/template"
	"io"
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

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{"prose": prose}).Parse(pageHTML))

// prose escapes a sentence and sets what stands between backticks as code.
func prose(s string) template.HTML {
	parts := strings.Split(html.EscapeString(s), "`")
	if len(parts)%2 == 0 {
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

// Write executes the template. The error is w's, or the template's.
func Write(w io.Writer, h PageHead, sections []PageSection) error {
	style := sheetCSS()
	p := page{
		Title:    "blis-train report",
		Policy:   policy(style, pageJS),
		Style:    template.CSS(style),
		Script:   template.JS(pageJS),
		Head:     h,
		Sections: sections,
	}
	p.limit()
	return pageTemplate.Execute(w, p)
}

// sheetCSS is the style sheet with the colours of both schemes.
func sheetCSS() string {
	light, dark := cssVars(false), cssVars(true)
	return ":root{color-scheme:light;" + light + "}\n" +
		"@media (prefers-color-scheme:dark){:root{color-scheme:dark;" + dark + "}}\n" +
		":root[data-theme=light]{color-scheme:light;" + light + "}\n" +
		":root[data-theme=dark]{color-scheme:dark;" + dark + "}\n" +
		"@media print{:root,:root[data-theme]{color-scheme:light;" + light + "}}\n" +
		cssMarks() + styleCSS
}

// policy allows this file's own style and script, by hash, and nothing else:
// no network, no other code, whatever a recording may have put into a string.
func policy(style, script string) string {
	return "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; style-src '" +
		digest(style) + "'; script-src '" + digest(script) + "'"
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}
