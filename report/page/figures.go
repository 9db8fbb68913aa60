package page

import (
	"html/template"

	"github.com/blis-train/blis-train/report/draw"
)

func FigureBlocks(fs []*draw.Figure) []Block {
	var out []Block
	for _, f := range fs {
		out = append(out, Block{Figure: viewOf(f)})
	}
	return out
}

// viewOf draws a figure for the page.
func viewOf(f *draw.Figure) *figureView {
	v := &figureView{ID: f.ID, Title: f.Title, Note: f.Note, More: f.More, Wide: f.Wide(), Closed: f.Closed}
	for _, p := range f.Panels {
		html := draw.Inline(p.D, p.Desc)
		if p.Narrow != nil {
			html = `<div class="wd">` + html + `</div><div class="nr">` + draw.Inline(p.Narrow, p.Desc) + `</div>`
		}
		v.Panels = append(v.Panels, template.HTML(html))
	}
	for _, k := range f.Legend {
		v.Legend = append(v.Legend, keyView{template.HTML(k.Svg()), k.Text})
	}
	return v
}
