package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/trace"
)

// initDoc is what init --json prints.
type initDoc struct {
	SchemaVersion string          `json:"schema_version"`
	RunYAML       string          `json:"run_yaml"`
	Missing       []string        `json:"missing"`
	Warnings      []trace.Finding `json:"warnings"` // what is left out, and what is not modelled
}

func runInit(c *cli.Context, con *console) error {
	if c.String("from-cmdline") == "" && c.String("from-log") == "" {
		return usagef("init: missing --from-cmdline or --from-log")
	}
	draft, err := draftOf(c)
	if err != nil {
		return err
	}
	model, err := con.modelConfig(draft, c.String("out"))
	if err != nil {
		return err
	}
	draft.CountKVBlocks(model)
	findings := draft.Findings(model)
	con.warn(findings)
	var text bytes.Buffer
	if err := draft.Write(&text); err != nil {
		return err
	}
	if err := writeDraft(c, con, text.Bytes()); err != nil {
		return err
	}
	missing := draft.Missing()
	if len(missing) > 0 {
		con.sayf("still to fill in: %s", strings.Join(missing, ", "))
	}
	return con.document(initDoc{result.SchemaVersion, text.String(), append([]string{}, missing...), append([]trace.Finding{}, findings...)})
}

// draftOf merges what flags, command line and log say, in this order, and adds
// vLLM's defaults.
func draftOf(c *cli.Context) (*deploy.Draft, error) {
	draft := deploy.NewDraft()
	for flag, path := range map[string]string{"hardware": "hardware.name", "model-config": "model.config", "vllm-version": "vllm.version",
		"name": "name"} {
		if v := c.String(flag); v != "" {
			draft.Set(path, v)
		}
	}
	if line := c.String("from-cmdline"); line != "" {
		said, err := deploy.FromCommandLine(line, func(name string) ([]byte, error) { return files.Read(name, 1<<24, false) })
		if err != nil {
			return nil, err
		}
		draft.Merge(said)
	}
	if name := c.String("from-log"); name != "" {
		said, err := draftOfLog(name, c.App.Reader, c.Bool("allow-special"))
		if err != nil {
			return nil, err
		}
		draft.Merge(said)
	}
	if name := c.String("hardware"); name != "" {
		if sheet, ok := deploy.Datasheet(name); ok {
			draft.Set("hardware.name", sheet.Name)
		}
	}
	draft.FillDefaults()
	draft.DropUnknown()
	return draft, nil
}

func draftOfLog(name string, stdin io.Reader, special bool) (*deploy.Draft, error) {
	if name == "-" {
		return deploy.FromLog(stdin, "standard input")
	}
	f, err := files.Open(name, special)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return deploy.FromLog(f, name)
}

// writeDraft writes the file, or standard output without -o.
func writeDraft(c *cli.Context, con *console, text []byte) error {
	name := c.String("out")
	if name == "" {
		if con.json {
			return nil
		}
		_, err := con.out.Write(text)
		return err
	}
	if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) && !c.Bool("force") {
		return trace.Hinted(fmt.Errorf("%s: the file exists", name), "--force replaces a file; in a folder name one, such as run.yaml")
	}
	err := os.MkdirAll(filepath.Dir(name), 0o777)
	if err == nil {
		err = files.Write(name, files.Readable(text))
	}
	if err != nil {
		return err
	}
	con.sayf("wrote %s", name)
	return nil
}
