package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
)

// vectorizer returns the beta features of batches under the set's spec version.
func vectorizer(set *coeff.Set) export.Vectorizer {
	return func(d *deploy.Deployment, batch []trace.Chunk) ([]float64, error) {
		p, err := pipeline.NewStepTimes(set, d)
		if err != nil {
			return nil, err
		}
		_, err = p.StepUs(batch)
		return p.Features(), err
	}
}

// readInput reads a file and says what it is, by base name.
func (con *console) readInput(path string) ([]byte, result.Input, error) {
	return folder.ReadInput(path, con.special)
}

// inputsExist reports the first of some names that is no file and no folder, before
// anything else is wrong. Globs, pipes and "" are for their readers.
func inputsExist(names ...string) error {
	for _, name := range names {
		if name == "" || name == "-" || strings.ContainsAny(name, "*?[") {
			continue
		}
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			return trace.Errorf(extract.CodeNoRuns, "%s: no such file or folder", name).WithHint(absentHint(name))
		}
	}
	return nil
}

// loadSet reads a coefficient file.
func (con *console) loadSet(path string) (*coeff.Set, result.Input, error) {
	set, in, err := folder.LoadCoefficients(path, con.special)
	if err == nil {
		con.warn(set.FileWarnings())
	}
	return set, in, err
}

// loadDeployment reads a run.yaml, or the one in a folder.
func loadDeployment(path string, set ...string) (*deploy.Deployment, error) {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return deploy.LoadRun(path, set...)
	}
	return deploy.LoadRunFile(path, set...)
}

// session is what outlives the console of a command: the output folders that it
// alone may write to, and how it logs.
type session struct {
	releases []func()
	log      *slog.Logger // nil: text
	command  string       // as it was called, without arguments
}

func (s *session) release() {
	for _, release := range s.releases {
		release()
	}
}

// claim is folder.Claim until the command ends.
func (con *console) claim(dir string, force bool) error {
	release, err := folder.Claim(dir, force)
	if err == nil {
		con.session.releases = append(con.session.releases, release)
	}
	return err
}

func (con *console) readDoc(path string, doc any) error {
	return folder.ReadDocument(path, doc, con.warn)
}

// readAs reads a document of the type, and says what it is.
func readAs[T any](con *console, path string) (*T, result.Input, error) {
	_, in, err := con.readInput(path)
	if err != nil {
		return nil, in, err
	}
	doc := new(T)
	return doc, in, con.readDoc(path, doc)
}

func readExtract(con *console, dir string) (*result.Extract, error) {
	return extract.ReadDocument(dir, con.warn)
}

// header starts a document, with the pipeline.yaml of the command.
func (con *console) header(command string) result.Header {
	h := result.NewHeader(folder.ToolVersion, command)
	h.Config = con.settings.record
	return h
}

// hubFolder is where Hugging Face's client keeps what it downloads, as its
// environment says (huggingface_hub, "Environment variables").
func hubFolder() string {
	if dir := os.Getenv("HF_HUB_CACHE"); dir != "" {
		return dir
	}
	home := os.Getenv("HF_HOME")
	if home == "" {
		cache := os.Getenv("XDG_CACHE_HOME")
		if user, err := os.UserHomeDir(); cache == "" && err == nil {
			cache = filepath.Join(user, ".cache")
		}
		home = filepath.Join(cache, "huggingface")
	}
	return filepath.Join(home, "hub")
}

// cachedConfig is the config.json of a model: in the folder that its id names, else
// in the local cache at the revision, by default main's; "" where there is none.
func cachedConfig(id, revision string) string {
	if id == "" {
		return ""
	}
	if path := filepath.Join(id, "config.json"); isFile(path) {
		return path
	}
	if !filepath.IsLocal(filepath.FromSlash(id)) || strings.Count(id, "/") > 1 {
		return ""
	}
	model := filepath.Join(hubFolder(), "models--"+strings.ReplaceAll(id, "/", "--"))
	revision = cmp.Or(revision, "main")
	if !filepath.IsLocal(revision) {
		return ""
	}
	if commit, err := files.Read(filepath.Join(model, "refs", revision), 1<<10, false); err == nil {
		revision = strings.TrimSpace(string(commit))
	}
	if path := filepath.Join(model, "snapshots", revision, "config.json"); filepath.IsLocal(revision) && isFile(path) {
		return path
	}
	return ""
}

// modelConfig gives the draft the model's config.json: as stated, one beside the file to
// write, else one on this machine; from elsewhere it is copied there. It says what the
// file says of the model, nil where it cannot be read.
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
	case isThere:
		draft.Set("model.config", name)
	default:
		revision, _ := draft.Get("vllm.revision").(string)
		if path = cachedConfig(id, revision); path == "" {
			return con.builtInModel(draft, id), nil
		}
	}
	m := con.readModel(draft, path)
	switch {
	case isThere || filepath.IsLocal(given) || !exists(path):
		return m, nil
	case out == "":
		con.sayf("%s is the model's config.json: copy it beside run.yaml, or use -o", path)
		return m, nil
	}
	for from, to := range map[string]string{path: name, model.QuantConfigName(path): model.QuantConfigName(name)} {
		text, err := files.Read(from, 1<<24, false)
		if err != nil { // most models have no other one
			continue
		}
		if err := files.Folder(dir); err != nil {
			return nil, err
		}
		if err := files.Write(filepath.Join(dir, to), text); err != nil {
			return nil, err
		}
		con.sayf("copied %s", from)
	}
	draft.SetNoted("model.config", name, "a copy")
	return m, nil
}

// readModel reads what the config says. A file that cannot be read or is refused is
// a warning here: init never blocks.
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
	return con.learn(model.Load(f, path, opts))
}

// builtInModel is the built-in model of that name, nil for none.
func (con *console) builtInModel(draft *deploy.Draft, id string) *model.Model {
	id, known := model.BuiltInID(id)
	if !known {
		return nil
	}
	opts := draft.ModelOptions()
	opts.ID = id
	return con.learn(model.LoadBuiltIn(opts))
}

// learn says what a model is, or why it is refused.
func (con *console) learn(m model.Model, err error) *model.Model {
	if err != nil {
		con.warn(model.RefusedModel(err))
		return nil
	}
	m.ID = cmp.Or(m.ID, m.ModelType)
	con.sayf("model: %s layers, %.2f B parameters, %.2f B active, %.1f GB of weights", m.Decoder.InWords(),
		float64(m.Decoder.TotalParams())/1e9, float64(m.Decoder.ActiveParams())/1e9, m.Decoder.WeightBytes()/1e9)
	return &m
}

// dryRunDoc is what --dry-run --json prints.
type dryRunDoc struct {
	SchemaVersion string     `json:"schema_version"`
	Runs          []foundRun `json:"runs"`
}

type foundRun struct {
	ID     string `json:"id"`
	Folder string `json:"folder"`
}

// listRuns answers --dry-run.
func listRuns(con *console, inputs []string, o pipeline.ExtractOptions) error {
	runs, err := pipeline.Discover(inputs, &o)
	if err != nil {
		return err
	}
	doc := dryRunDoc{SchemaVersion: result.SchemaVersion, Runs: []foundRun{}}
	for _, r := range runs {
		doc.Runs = append(doc.Runs, foundRun{r.ID, r.Dir})
		if !con.json {
			fmt.Fprintf(con.out, "%s\t%s\n", files.Line(r.ID), files.Line(r.Dir))
		}
	}
	return con.document(doc)
}

// initDoc is what init --json prints.
type initDoc struct {
	SchemaVersion string          `json:"schema_version"`
	RunYAML       string          `json:"run_yaml"`
	Missing       []string        `json:"missing"`
	Warnings      []trace.Finding `json:"warnings"` // what is left out, and what is not modelled
}

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
			&cli.StringFlag{Name: "hardware", Usage: "device `NAME`, a built-in datasheet such as H100, A100, RTX-4090"},
			&cli.StringFlag{Name: "model-config",
				Usage: "the model's config.json, `FILE` as seen from run.yaml's folder (default: config.json when it is there, " +
					"else the local Hugging Face cache's)"},
			&cli.StringFlag{Name: "vllm-version", Usage: "`VERSION` of vLLM, when neither source names it"},
			&cli.StringFlag{Name: "name", Usage: "run `ID`"},
			&cli.BoolFlag{Name: "force", Usage: "replace an existing file"},
			outFlag("`FILE` to write (default: standard output)"),
		},
	}, nil, runInit)
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
