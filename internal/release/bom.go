package main

import (
	"debug/buildinfo"
	"encoding/json"
	"os"
	"runtime/debug"
	"time"
)

// The part of CycloneDX 1.5 that is written (cyclonedx.org, ECMA-424).
type (
	bom struct {
		Format     string      `json:"bomFormat"`
		Spec       string      `json:"specVersion"`
		Version    int         `json:"version"`
		Metadata   bomMetadata `json:"metadata"`
		Components []bomPart   `json:"components"`
	}
	bomMetadata struct {
		Timestamp string  `json:"timestamp"`
		Component bomPart `json:"component"`
	}
	bomPart struct {
		Type       string        `json:"type"`
		Name       string        `json:"name"`
		Version    string        `json:"version"`
		PURL       string        `json:"purl"`
		Properties []bomProperty `json:"properties,omitempty"`
	}
	bomProperty struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
)

// writeBOM lists the modules that the linker really put into a binary.
func writeBOM(name, bin string, s stamp) error {
	info, err := buildinfo.ReadFile(bin)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(bomOf(info, s), "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(text, '\n'), 0o644)
}

func bomOf(info *debug.BuildInfo, s stamp) bom {
	out := bom{Format: "CycloneDX", Spec: "1.5", Version: 1, Metadata: bomMetadata{Timestamp: s.date.Format(time.RFC3339),
		Component: bomPart{Type: "application", Name: info.Main.Path, Version: s.version, PURL: purl(info.Main.Path, s.version),
			Properties: []bomProperty{{"commit", s.commit}}}}}
	out.Components = append(out.Components, bomPart{Type: "library", Name: "std", Version: info.GoVersion,
		PURL: "pkg:golang/std@" + info.GoVersion})
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		p := bomPart{Type: "library", Name: m.Path, Version: m.Version, PURL: purl(m.Path, m.Version)}
		if m.Sum != "" {
			p.Properties = []bomProperty{{"go.sum", m.Sum}}
		}
		out.Components = append(out.Components, p)
	}
	return out
}

func purl(path, version string) string { return "pkg:golang/" + path + "@" + version }
