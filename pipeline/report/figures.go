package report

import "html/template"

func FigureBlocks(fs []*Figure) []Block {
	var out []Block
	for _, f := range fs {
		out = append(out, Block{Figure: viewOf(f)})
	}
	return out
}

// viewOf draws a figure for the page.
func viewOf(f *Figure) *figureView {
	v := &figureView{ID: f.ID, Title: f.Title, Note: f.Note, More: f.More, Wide: f.Wide(), Closed: f.Closed}
	for _, p := range f.Panels {
		html := inline(p.D, p.Desc)
		if p.Narrow != nil {
			html = `<div class="wd">` + html + `</div><div class="nr">` + inline(p.Narrow, p.Desc) + `</div>`
		}
		v.Panels = append(v.Panels, template.HTML(html))
	}
	for _, k := range f.Legend {
		v.Legend = append(v.Legend, keyView{template.HTML(k.Svg()), k.Text})
	}
	return v
}
