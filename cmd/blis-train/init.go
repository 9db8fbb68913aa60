package main

// This file is the command init, which writes a run.yaml from a server's command line or log.

import (
	"bytes"
	"cmp"
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
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// initCommand returns the command init.
func initCommand() *cli.Command {
	return newCommand(&cli.Command{
		Name:  "init",
		Usage: "write a run.yaml from the server's command line or start-up log",
		Description: `run.yaml gets what the command line, its --config file and the log state. vLLM's defaults on the given
hardware are filled in and marked; what stays unknown is left as a line to fill in, and listed. Flags that
are not known, and settings that no step-time model covers, are not written but reported.

Example:
   blis-train init --from-cmdline 'vllm serve meta-llama/Llama-3.1-8B --max-num-seqs 128' \
      --from-log vllm.log --hardware H100 --model-config config.json -o run.yaml`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "from-cmdline", Usage: "the `COMMAND` that started the server, as one argument"},
			&cli.StringFlag{Name: "from-log", Usage: "the server's log, `FILE` (plain or gzip; - is standard input)"},
			&cli.StringFlag{Name: "hardware",
				Usage: "device `NAME`, a built-in datasheet such as H100, A100, RTX-4090"},
			&cli.StringFlag{Name: "model-config",
				Usage: "the model's config.json, `FILE` as seen from run.yaml's folder (default: config.json when " +
					"it is there, else the local Hugging Face cache's)"},
			&cli.StringFlag{Name: "vllm-version", Usage: "`VERSION` of vLLM (default: what the command line's image or the log names)"},
			&cli.StringFlag{Name: "name", Usage: "run `ID`"},
			&cli.BoolFlag{Name: "force", Usage: "replace an existing file"},
			outFlag("`FILE` to write (default: standard output)"),
		},
	}, nil, runInit)
}

// runInit writes a run.yaml from the server's command line and start-up log.
func runInit(c *cli.Context, con *console) error {
	if c.String("from-cmdline") == "" && c.String("from-log") == "" {
		return usagef("init: missing --from-cmdline or --from-log")
	}
	draft, stated, unlike, err := draftOf(c)
	if err != nil {
		return err
	}
	model, err := con.modelConfig(draft, c.String("out"))
	if err != nil {
		return err
	}
	if err := draft.CheckStated(stated); err != nil {
		return err
	}
	draft.CountKVBlocks(model)
	findings := append(unlike, draft.Findings(model)...)
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
		con.infof("still to fill in: %s", strings.Join(missing, ", "))
	}
	return con.document(initDoc{
		SchemaVersion: result.SchemaVersion,
		RunYAML:       text.String(),
		Missing:       append([]string{}, missing...), // an empty list, not null
		Warnings:      append([]trace.Finding{}, findings...),
	})
}

// draftOf returns the draft of a run.yaml. Flags take precedence over the server's command line,
// and that over the log: Merge keeps what is set. What none of them states gets vLLM's default. commandLine is what
// the command line states, and unlike warns of settings that these sources state differently.
func draftOf(c *cli.Context) (draft, commandLine *deploy.Draft, unlike []trace.Finding, err error) {
	draft = deploy.NewDraft()
	commandLine = deploy.NewDraft()
	for _, f := range []struct{ flag, key string }{
		{"hardware", "hardware.name"},
		{"model-config", "model.config"},
		{"vllm-version", "vllm.version"},
		{"name", "name"},
	} {
		if v := c.String(f.flag); v != "" {
			draft.Set(f.key, v)
		}
	}
	if sheet, ok := deploy.Datasheet(c.String("hardware")); ok {
		draft.Set("hardware.name", sheet.Name)
	}
	flags := deploy.NewDraft()
	flags.Merge(draft)
	warn := func(contradictions []deploy.Contradiction) {
		for _, one := range contradictions {
			unlike = append(unlike, trace.Findingf(source.CodeRunContradicted, "%s", one.Sentence).About(one.Setting))
		}
	}
	if line := c.String("from-cmdline"); line != "" {
		commandLine, err = deploy.FromCommandLine(line, func(name string) ([]byte, error) {
			return files.Read(name, 1<<24, false)
		})
		if err != nil {
			return nil, nil, nil, err
		}
		warn(flags.Unlike(commandLine, "a flag of init", "the command line"))
		draft.Merge(commandLine)
	}
	if name := c.String("from-log"); name != "" {
		stated, err := draftOfLog(name, c.App.Reader, c.Bool("allow-special"))
		if err != nil {
			return nil, nil, nil, err
		}
		warn(flags.Unlike(stated, "a flag of init", "the log"))
		warn(commandLine.Unlike(stated, "the command line", "the log"))
		draft.Merge(stated)
	}
	version, _ := draft.Get("vllm.version").(string)
	if err := commandLine.RefusedFlag(version); err != nil {
		return nil, nil, nil, err
	}
	draft.FillDefaults()
	draft.DropUnknown()
	return draft, commandLine, unlike, nil
}

// draftOfLog returns the draft that a log gives. name "-" is standard input; special allows pipes.
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

// writeDraft writes the text of run.yaml to the file of -o, or to standard output.
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
		return trace.Hinted(fmt.Errorf("%s: the file exists", name),
			"--force replaces a file; in a folder name one, such as run.yaml")
	}
	err := os.MkdirAll(filepath.Dir(name), 0o777)
	if err == nil {
		err = files.Write(name, files.Readable(text))
	}
	if err != nil {
		return err
	}
	con.infof("wrote %s", name)
	return nil
}

// initDoc is what init --json prints.
type initDoc struct {
	SchemaVersion string          `json:"schema_version"`
	RunYAML       string          `json:"run_yaml"`
	Missing       []string        `json:"missing"`
	Warnings      []trace.Finding `json:"warnings"` // flags that were not written, settings that are not modelled
}

// modelConfig sets the model's config.json in the draft: the stated one, else the one in the folder
// of the run.yaml to be written (out), else one on this machine, which is copied into that folder.
// It returns the model; nil if the file cannot be read.
func (con *console) modelConfig(draft *deploy.Draft, out string) (*model.Model, error) {
	const name = "config.json"
	dir := filepath.Dir(out)
	id, _ := draft.Get("model.id").(string)
	given, _ := draft.Get("model.config").(string)
	path := filepath.Join(dir, name)
	exists := func(path string) bool { _, err := os.Stat(path); return err == nil }
	isThere := exists(path)
	switch {
	case filepath.IsAbs(given):
		path = given
	case given != "":
		path = filepath.Join(dir, given)
		if !exists(path) {
			con.warn([]trace.Finding{trace.Findingf(model.MissingConfig, "%s: no such file; extract refuses run.yaml without it", path)})
		}
	case isThere:
		draft.Set("model.config", name)
	default:
		revision, _ := draft.Get("vllm.revision").(string)
		if path = model.FindConfig(id, revision); path == "" {
			return con.builtInModel(draft, id), nil
		}
	}
	// A file from elsewhere is copied into the folder of the run.yaml, which names it.
	m := con.readModel(draft, path)
	switch {
	case isThere || filepath.IsLocal(given) || !exists(path):
		return m, nil
	case out == "":
		con.infof("%s is the model's config.json: copy it into the folder of run.yaml, or use -o", path)
		return m, nil
	}
	for _, file := range []struct{ from, to string }{
		{path, name},
		{model.QuantConfigName(path), model.QuantConfigName(name)},
	} {
		text, err := files.Read(file.from, 1<<24, false)
		if err != nil { // most models have no hf_quant_config.json
			continue
		}
		if err := files.Folder(dir); err != nil {
			return nil, err
		}
		if err := files.Write(filepath.Join(dir, file.to), text); err != nil {
			return nil, err
		}
		con.infof("copied %s", file.from)
	}
	draft.SetNoted("model.config", name, "a copy")
	return m, nil
}

// readModel returns the model that a config.json describes. If the file cannot be read or is
// refused it warns and returns nil, because init still writes run.yaml.
func (con *console) readModel(draft *deploy.Draft, path string) *model.Model {
	f, err := files.Open(path, false)
	if err != nil {
		return nil
	}
	defer f.Close()
	opts := draft.ModelOptions()
	if quant, err := files.Read(model.QuantConfigName(path), 1<<24, false); err == nil {
		opts.QuantConfig = quant
	}
	return con.describeModel(model.Load(f, path, opts))
}

// builtInModel returns the built-in model with the id; nil if there is none.
func (con *console) builtInModel(draft *deploy.Draft, id string) *model.Model {
	id, known := model.BuiltInID(id)
	if !known {
		return nil
	}
	opts := draft.ModelOptions()
	opts.ID = id
	return con.describeModel(model.LoadBuiltIn(opts))
}

// describeModel prints the size of a model and returns it. If err states why it is refused, it
// warns and returns nil.
func (con *console) describeModel(m model.Model, err error) *model.Model {
	if err != nil {
		con.warn(model.RefusedModel(err))
		return nil
	}
	m.ID = cmp.Or(m.ID, m.ModelType)
	con.infof("model: %s layers, %.2f B parameters, %.2f B active, %.1f GB of weights", m.Decoder.InWords(),
		float64(m.Decoder.TotalParams())/1e9, float64(m.Decoder.ActiveParams())/1e9, m.Decoder.WeightBytes()/1e9)
	return &m
}
