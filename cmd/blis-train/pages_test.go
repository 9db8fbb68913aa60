package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/urfave/cli/v2"
	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/autoscale"
	"github.com/blis-train/blis-train/cluster"
	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/predictor"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/simulate"
)

// Limits of what a user is asked to read.
const mostCommands, mostFlags = 30, 28

// leaf is a command that does something.
type leaf struct {
	name string // with the command above it
	*cli.Command
}

func leaves() (all []leaf) {
	app := newApp("", strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{})
	for _, c := range app.Commands {
		for _, sub := range c.Subcommands {
			all = append(all, leaf{c.Name + " " + sub.Name, sub})
		}
		if len(c.Subcommands) == 0 {
			all = append(all, leaf{c.Name, c})
		}
	}
	return all
}

// TestFewCommandsAndFlags: hidden ones count too.
func TestFewCommandsAndFlags(t *testing.T) {
	all := leaves()
	if len(all) > mostCommands {
		t.Errorf("got %d commands, want at most %d", len(all), mostCommands)
	}
	for _, l := range all {
		if n := len(l.Flags); n > mostFlags {
			t.Errorf("%s: got %d flags, want at most %d: make some keys of pipeline.yaml", l.name, n, mostFlags)
		}
	}
}

// TestFlagsAreTested: every flag stands in a script, on a line that calls its command, or in a
// Go test that does. Commands that share a flag, with its help, share the test.
func TestFlagsAreTested(t *testing.T) {
	all := leaves()
	helps := make([][]string, len(all)) // the help of each flag of each command, made once: it takes long
	for i, l := range all {
		for _, f := range l.Flags {
			helps[i] = append(helps[i], f.String())
		}
	}
	said := map[string]bool{} // by a flag's help, which has its name
	flag := regexp.MustCompile(`--?([a-z][a-z0-9-]*)`)
	for _, glob := range []string{"testdata/script/*.txtar", "*_test.go"} {
		names, err := filepath.Glob(glob)
		must(t, err)
		for _, n := range names {
			text, err := os.ReadFile(n)
			must(t, err)
			parts := []string{string(text)} // the arguments of a Go test have many lines
			if strings.HasSuffix(n, ".txtar") {
				parts = strings.Split(parts[0], "\n")
			}
			for _, part := range parts {
				var given []string
				for _, m := range flag.FindAllStringSubmatch(part, -1) {
					given = append(given, m[1])
				}
				for i, l := range all {
					if !calls(part, l.name) {
						continue
					}
					for k, f := range l.Flags {
						if slices.ContainsFunc(f.Names(), func(n string) bool { return slices.Contains(given, n) }) {
							said[helps[i][k]] = true
						}
					}
				}
			}
		}
	}
	for i, l := range all {
		for k, f := range l.Flags {
			if !said[helps[i][k]] {
				t.Errorf("%s --%s: in no script or test that calls the command", l.name, f.Names()[0])
			}
		}
	}
}

// calls reports whether a line of a script or of a test calls the command.
func calls(line, name string) bool {
	return strings.Contains(line, "blis-train "+name+" ") || strings.Contains(line, "call "+name+" ") || strings.Contains(line, `"`+strings.ReplaceAll(name, " ", `", "`)+`"`)
}

// TestPagesAreGenerated: docs/commands.md has every flag of every command, docs/pipeline-yaml.md
// every key; -update rewrites them.
func TestPagesAreGenerated(t *testing.T) {
	for path, want := range map[string]func(string) string{"commands.md": commandsPage, "pipeline-yaml.md": keysPage} {
		path = filepath.Join("..", "..", "docs", path)
		got, err := os.ReadFile(path)
		must(t, err)
		if text := want(string(got)); text != string(got) {
			if !*updateScripts {
				t.Errorf("%s is stale: go generate ./cmd/blis-train", path)
				continue
			}
			repo.Write(t, text, path)
		}
	}
}

const generatedBelow = "<!-- generated below this line: go generate ./cmd/blis-train -->\n"

// commandsPage is the page with its generated part made anew. A flag is described once: those that nearly every command
// has, and those that several commands have, in tables of their own; one that another command has described before is
// named there. A command's own table has the others.
func commandsPage(old string) string {
	before, _, _ := strings.Cut(old, generatedBelow)
	var b strings.Builder
	b.WriteString(before + generatedBelow)
	const several = 3
	users := map[string]int{}
	common := map[string]string{} // commands of a row; of a name, the row that most commands have
	for _, l := range leaves() {
		for _, f := range l.Flags {
			name := flagRow(f)[0]
			row := strings.Join(flagRow(f), "\t")
			if users[row]++; users[row] >= several && users[row] > users[common[name]] {
				common[name] = row
			}
		}
	}
	// Flags of every command that has flags but these: their names are not repeated.
	without := map[string][]string{}
	for _, l := range leaves() {
		for name, row := range common {
			has := slices.ContainsFunc(l.Flags, func(f cli.Flag) bool { return strings.Join(flagRow(f), "\t") == row })
			if !has {
				without[name] = append(without[name], "`"+l.name+"`")
			}
		}
	}
	const few = 3
	everywhere := func(name string) bool { return len(without[name]) <= few }
	for _, of := range []struct {
		title string
		has   func(name string) bool
	}{
		{"Flags of every command", everywhere},
		{"Flags of several commands", func(name string) bool { return !everywhere(name) }},
	} {
		t := report.NewTable("", "", "flag", "default", "meaning")
		for _, name := range slices.Sorted(maps.Keys(common)) {
			if row := strings.Split(common[name], "\t"); of.has(name) {
				if lack := without[name]; everywhere(name) && len(lack) > 0 {
					row[2] += "; not of " + strings.Join(lack, ", ")
				}
				t.Add(row...)
			}
		}
		b.WriteString("\n## " + of.title + "\n\n" + t.Markdown(cell))
	}
	describedBy := map[string]string{} // rows of tables of single commands
	for _, l := range leaves() {
		fmt.Fprintf(&b, "\n## %s\n\n%s. `%s`\n\n", l.name, sentence(l.Usage)[:len(sentence(l.Usage))-1],
			strings.TrimSpace("blis-train "+l.name+" "+strings.TrimSpace(l.ArgsUsage)))
		t := report.NewTable("", "", "flag", "default", "meaning")
		also := map[string][]string{}
		var places []string
		for _, f := range l.Flags {
			row := flagRow(f)
			key := strings.Join(row, "\t")
			place := ""
			switch {
			case common[row[0]] == key && everywhere(row[0]):
				continue
			case common[row[0]] == key:
				place = "[Shared](#flags-of-several-commands)"
			case describedBy[key] != "":
				place = "As of [" + describedBy[key] + "](#" + strings.ReplaceAll(describedBy[key], " ", "-") + ")"
			default:
				describedBy[key] = l.name
				t.Add(row...)
				continue
			}
			if also[place] == nil {
				places = append(places, place)
			}
			also[place] = append(also[place], row[0])
		}
		if len(t.Rows) > 0 {
			b.WriteString(t.Markdown(cell))
		}
		for i, place := range places {
			if i > 0 || len(t.Rows) > 0 {
				b.WriteString("\n")
			}
			b.WriteString(place + ": " + strings.Join(also[place], ", ") + "\n")
		}
	}
	b.WriteString("\nRead next: [pipeline.yaml](pipeline-yaml.md), [terms](terms.md).\n")
	return b.String()
}

// defaultOf finds the default in a flag's line of help.
var defaultOf = regexp.MustCompile(` \(default: (.*)\)$`)

// flagRow is a flag as a page lists it: names, default, meaning, as flagLine has them.
func flagRow(f cli.Flag) []string {
	_, usage, _ := strings.Cut(f.String(), "\t")
	usage, _, _ = strings.Cut(usage, " [$")
	value := ""
	if m := defaultOf.FindStringSubmatchIndex(usage); m != nil {
		value = usage[m[2]:m[3]]
		usage = usage[:m[0]]
	}
	var names []string
	for _, n := range f.Names() {
		names = append(names, "`"+dashed(n)+"`")
	}
	return []string{strings.Join(names, ", "), plainDefault(value), strings.TrimSpace(usage)}
}

// plainDefault is a default as a page says it: nothing where that is empty, or a switch off.
func plainDefault(value string) string {
	switch value {
	case "", "false", `""`, "[]":
		return ""
	}
	return strings.Trim(value, `"`)
}

// stageGroup is a group of pipeline.yaml: its options, and the commands that read it.
type stageGroup struct {
	name    string
	options []cli.Flag
	readers []string
}

func stageGroups() []stageGroup {
	extract := pipeline.DefaultExtractOptions()
	fit := pipeline.DefaultFitOptions()
	validate := pipeline.DefaultValidateOptions()
	sim := cluster.Options{Options: simulate.DefaultOptions()}
	export := pipeline.DefaultExportOptions()
	return []stageGroup{
		{"extract", extract.Flags(), []string{"run", "plan", "extract", "inspect"}},
		{"fit", fit.Flags(), []string{"run", "plan", "fit"}},
		{"validate", validate.Flags(), []string{"run", "plan", "validate"}},
		{"simulate", sim.Flags(), []string{"simulate"}},
		{"export", export.Flags(), []string{"export"}},
	}
}

// keysPage is the page with its generated part made anew: every option of every stage. The page of commands has the
// meaning of those that are flags.
func keysPage(old string) string {
	before, _, _ := strings.Cut(old, generatedBelow)
	flagsOf := map[string][]cli.Flag{}
	for _, l := range leaves() {
		flagsOf[l.name] = l.Flags
	}
	var b strings.Builder
	b.WriteString(before + generatedBelow)
	for _, g := range stageGroups() {
		fmt.Fprintf(&b, "\n## %s\n\n", g.name)
		t := report.NewTable("", "", "key", "default", "meaning")
		var flags []string
		for _, f := range g.options {
			name := f.Names()[0]
			isFlag := func(command string) bool { return option.Find(flagsOf[command], name) != nil }
			if slices.ContainsFunc(g.readers, isFlag) {
				flags = append(flags, "`"+name+"`")
				continue
			}
			row := flagRow(f)
			t.Add("`"+name+"`", row[1], row[2])
		}
		if len(flags) > 0 {
			b.WriteString("As the [flags](commands.md) of the same names: " + strings.Join(flags, ", ") + ".\n")
		}
		if len(t.Rows) > 0 {
			b.WriteString("\nKeys without a flag:\n\n" + t.Markdown(cell))
		}
	}
	b.WriteString("\nRead next: [commands](commands.md), [automation](automation.md).\n")
	return b.String()
}

// TestRunTakesTheKeysOfItsGroups: run and plan take every key that the page lists for extract, fit and validate, but those
// that the page names.
func TestRunTakesTheKeysOfItsGroups(t *testing.T) {
	page := string(repo.Read(t, "..", "..", "docs", "pipeline-yaml.md"))
	intro, _, _ := strings.Cut(page, generatedBelow)
	for _, command := range []*cli.Command{runCommand(), planCommand()} {
		o := pipeline.DefaultRunOptions()
		groups := runGroups(&o)
		if command.Name == "plan" {
			groups = planGroups(&o)
		}
		for _, stage := range stageGroups()[:3] {
			at := slices.IndexFunc(groups, func(g group) bool { return g.name == stage.name })
			for _, f := range stage.options {
				key := f.Names()[0]
				isTaken := option.Find(command.Flags, key) != nil || option.Find(groups[at].options, key) != nil
				isRefused := groups[at].refused[key] != ""
				if isTaken == isRefused || isRefused && !strings.Contains(intro, "`"+key+"`") {
					t.Errorf("%s, %s: %s: taken %t, refused %t, want one of them, and what is refused on the page", command.Name, stage.name, key, isTaken, isRefused)
				}
			}
		}
	}
}

// TestOptionsKeepTheirDefaults: a flag has the default of the field that it sets.
func TestOptionsKeepTheirDefaults(t *testing.T) {
	for _, g := range stageGroups() {
		set := flag.NewFlagSet(g.name, flag.ContinueOnError)
		for _, f := range g.options {
			before := option.Values(f)
			must(t, f.Apply(set))
			if after := option.Values(f); !slices.Equal(before, after) {
				t.Errorf("%s: %s: the flag's default is %q, the field's %q", g.name, f.Names()[0], after, before)
			}
		}
	}
}

// TestCommandsHaveTheirNames: a call makes the command that it names.
func TestCommandsHaveTheirNames(t *testing.T) {
	for _, c := range allCommands() {
		if got := c.make().Name; got != c.name {
			t.Errorf("got %s, want %s", got, c.name)
		}
	}
}

// sentence makes s start with a capital and end with a stop.
func sentence(s string) string {
	s = strings.TrimSpace(s)
	if s == "" {
		return s
	}
	s = strings.ToUpper(s[:1]) + s[1:]
	if !strings.HasSuffix(s, ".") {
		s += "."
	}
	return s
}

var updateSchemas = flag.Bool("update-schemas", false, "rewrite docs/schema")

// simulationDocument is simulation.json of one engine or of a cluster.
type simulationDocument struct {
	simulate.Document
	Cluster *cluster.Part `json:"cluster,omitempty"`
}

var documents = map[string]any{
	"extract":    result.Extract{},
	"fit":        result.Fit{},
	"validation": result.Validation{},
	"inspect":    result.Inspect{},
	"queue":      autoscale.Queue{},
	"simulation": simulationDocument{},

	"experiment":       cluster.Document{},
	"optimise":         cluster.OptimiseDoc{},
	"predictor":        predictor.Document{},
	"predictor_rows":   predictor.RowsDocument{},
	"predictor_scores": predictor.Scores{},
}

// TestSchemasAreCurrent: docs/schema says what the structs say. Its descriptions are written by hand and kept.
func TestSchemasAreCurrent(t *testing.T) {
	for name, doc := range documents {
		path := filepath.Join("..", "..", "docs", "schema", name+".schema.json")
		got, err := os.ReadFile(path)
		if err != nil && !*updateSchemas {
			t.Error(err)
			continue
		}
		schema := schemaOf(name+".json of blis-train", doc)
		if err == nil {
			var current map[string]any
			must(t, json.Unmarshal(got, &current))
			keepDescriptions(schema, current)
		}
		want, err := result.Marshal(schema)
		if err != nil {
			t.Fatal(err)
		}
		if *updateSchemas {
			repo.Write(t, want, path)
			continue
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is stale: go test ./cmd/blis-train -run TestSchemas -update-schemas", path)
		}
	}
}

// keepDescriptions copies the descriptions of a schema to the same places of another.
func keepDescriptions(to, from map[string]any) {
	for key, value := range from {
		switch value := value.(type) {
		case string:
			if key == "description" {
				to[key] = value
			}
		case map[string]any:
			if place, ok := to[key].(map[string]any); ok {
				keepDescriptions(place, value)
			}
		}
	}
}

// TestSchemasAcceptAndRefuse: a written document passes; a foreign key, a wrong
// type and a missing key do not.
func TestSchemasAcceptAndRefuse(t *testing.T) {
	for name, doc := range documents {
		schema := compile(t, name)
		text, err := result.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		var good map[string]any
		if err := json.Unmarshal(text, &good); err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(good); err != nil {
			t.Errorf("%s: an empty document is refused: %v", name, err)
		}
		good["surprise"] = 1.0
		if schema.Validate(good) == nil {
			t.Errorf("%s: an unknown key passes", name)
		}
		delete(good, "surprise")
		good["command"] = 3.0
		if schema.Validate(good) == nil {
			t.Errorf("%s: a number passes for a string", name)
		}
		delete(good, "command")
		if schema.Validate(good) == nil {
			t.Errorf("%s: a missing key passes", name)
		}
	}
}

// faultsOfDocuments returns how documents below dir differ from their schemas. A document that was changed since
// blis-train wrote it, as its digest shows, or that it cannot read is the script's own.
func faultsOfDocuments(schemas map[string]*jsonschema.Schema, dir string) (faults []string) {
	_ = filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // a folder that the script made unreadable
		}
		name, ext := strings.TrimSuffix(d.Name(), filepath.Ext(file)), filepath.Ext(file)
		text, err := os.ReadFile(file)
		if err != nil {
			return nil
		}
		sum := documentSum{d.Name(), sha256.Sum256(text)}
		if _, ok := soundDocuments.Load(sum); ok {
			return nil
		}
		var doc any
		switch {
		case ext == ".json" && bytes.Contains(text, []byte(`"document_digest": "`)) && result.Intact(text):
			if strings.HasSuffix(name, ".provenance") {
				name = "export-provenance"
			}
		case ext == ".yaml" && bytes.Contains(text, []byte("physics_coefficients")) && yaml.Unmarshal(text, &doc) == nil:
			if _, err := coeff.Parse(text); err != nil {
				return nil
			}
			name = "coefficients"
			text, _ = json.Marshal(doc)
		default:
			return nil
		}
		schema := schemas[name]
		if schema == nil {
			return nil // a copy under another name
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err == nil {
			err = schema.Validate(value)
		}
		if err != nil {
			faults = append(faults, fmt.Sprintf("%s: %v", file, err))
		} else {
			soundDocuments.Store(sum, true)
		}
		return nil
	})
	return faults
}

// documentSum is the name of a document's file and the SHA-256 of its bytes.
type documentSum struct {
	name string
	sum  [sha256.Size]byte
}

// soundDocuments are those that follow their schemas: several scripts have the same documents, and parts of one script
// copies of them.
var soundDocuments sync.Map // keys are documentSum

// compiledSchemas returns the schemas of docs/schema by the documents' names.
func compiledSchemas(t *testing.T) map[string]*jsonschema.Schema {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "docs", "schema", "*.schema.json"))
	must(t, err)
	all := map[string]*jsonschema.Schema{}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".schema.json")
		all[name] = compile(t, name)
	}
	return all
}

func compile(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile(filepath.Join("..", "..", "docs", "schema", name+".schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// schemaOf is the JSON schema (draft 2020-12) of a document's type: every key it
// can hold, no other. Pointers and unknown-able values may be null, lists and
// maps may be null when nothing was computed, keys with omitempty or omitzero may be absent.
func schemaOf(title string, doc any) map[string]any {
	g := schemaGen{defs: map[string]any{}}
	s := g.of(reflect.TypeOf(doc))
	root := map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"title":   title,
		"$defs":   g.defs,
	}
	for k, v := range s {
		root[k] = v
	}
	return root
}

// schemaGen collects the named structs it meets under $defs.
type schemaGen struct{ defs map[string]any }

func (g *schemaGen) of(t reflect.Type) map[string]any {
	if v, ok := optionalType(t); ok {
		return nullable(g.of(v))
	}
	if t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return map[string]any{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return nullable(g.of(t.Elem()))
	case reflect.Struct:
		return g.ref(t)
	case reflect.Slice:
		return map[string]any{"type": []string{"array", "null"}, "items": g.of(t.Elem())}
	case reflect.Array:
		return map[string]any{"type": "array", "items": g.of(t.Elem()), "minItems": t.Len(), "maxItems": t.Len()}
	case reflect.Map:
		return map[string]any{"type": []string{"object", "null"}, "additionalProperties": g.of(t.Elem())}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Interface:
		return map[string]any{}
	}
	return map[string]any{"type": "integer"}
}

// optionalType recognises trace.Opt: a known value or null.
func optionalType(t reflect.Type) (reflect.Type, bool) {
	if t.Kind() == reflect.Struct && strings.HasPrefix(t.Name(), "Opt[") {
		v, _ := t.FieldByName("V")
		return v.Type, true
	}
	return nil, false
}

func nullable(s map[string]any) map[string]any {
	return map[string]any{"anyOf": []any{s, map[string]any{"type": "null"}}}
}

func (g *schemaGen) ref(t reflect.Type) map[string]any {
	name := path.Base(t.PkgPath()) + "." + t.Name()
	if _, seen := g.defs[name]; !seen {
		g.defs[name] = nil // holds the place while the fields are walked
		properties := map[string]any{}
		required := []string{}
		g.fields(t, properties, &required)
		g.defs[name] = map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
	}
	return map[string]any{"$ref": "#/$defs/" + name}
}

func (g *schemaGen) fields(t reflect.Type, properties map[string]any, required *[]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		key, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case key == "-" || !f.IsExported():
			continue
		case f.Anonymous && key == "":
			g.fields(f.Type, properties, required)
			continue
		case key == "":
			key = f.Name
		}
		properties[key] = g.of(f.Type)
		if !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero") {
			*required = append(*required, key)
		}
	}
}

// TestDocumentsFollowTheirSchemas: every file that a whole run and an inspection
// write is validated against docs/schema.
func TestDocumentsFollowTheirSchemas(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	traces := filepath.Join("..", "..", "testdata", "traces", "smoke")
	for _, args := range [][]string{
		{"run", traces, "-o", out, "--bootstraps", "50", "--quiet"},
		{"inspect", out, "-o", out, "--quiet"},
	} {
		var stderr strings.Builder
		if code := run(append([]string{"blis-train"}, args...), strings.NewReader(""), io.Discard, &stderr); code != exitOK && code != exitGate {
			t.Fatalf("%v: exit %d: %s", args, code, stderr.String())
		}
	}
	for _, name := range []string{"extract", "fit", "validation", "inspect"} {
		schema, err := jsonschema.NewCompiler().Compile(filepath.Join("..", "..", "docs", "schema", name+".schema.json"))
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(out, name+".json"))
		if err != nil {
			t.Error(err)
			continue
		}
		var doc any
		if err := json.Unmarshal(data, &doc); err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(doc); err != nil {
			t.Errorf("%s.json: %v", name, err)
		}
	}
}

// TestAudit: numpy recomputes features, ridge, errors and distances of a run of the demo from
// its tables, and every number agrees to 1e-10.
func TestAudit(t *testing.T) {
	python := cmp.Or(os.Getenv("BLIS_TRAIN_NUMPY"), "python3")
	if said, err := exec.Command(python, "-c", "import numpy, pyarrow").CombinedOutput(); err != nil {
		t.Skipf("skipped: %s has no numpy and pyarrow (%v %.80s); BLIS_TRAIN_NUMPY names another", python, err, said)
	}
	audit(t, python, "../../testdata/traces/demo/a100-codellama-34b-tp2")
	audit(t, python, repo.Shared(t, "data", "composed", "a100-llama-3.1-8b-tp1")) // with outliers, six of them held out
}

// audit runs and simulates a recording of a synchronous engine, and lets numpy do it again.
func audit(t *testing.T, python, demo string) {
	t.Helper()
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	sim := filepath.Join(dir, "sim")
	config := filepath.Join(dir, "pipeline.yaml")
	must(t, os.WriteFile(config, []byte("fit: {spec: \"1.1\", prior: zero, bootstraps: 50}\n"), 0o644))
	command(t, -1, "run", demo, "--config", config, "-o", out, "--quiet")
	command(t, 0, "simulate", "--deployment", filepath.Join(demo, "run.yaml"), "--coefficients", filepath.Join(out, folder.CoefficientsFile),
		"--workload", demo, "-o", sim, "--quiet")
	said, err := exec.Command(python, "-B", filepath.Join(repo.Root(t), "python", "tests", "audit.py"), out, sim).CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", python, err, said)
	}
	t.Log(strings.TrimSpace(string(said)))
}

// spoil makes a run folder bad, each in another way; plan finds the first three at once.
var spoil = []func(t *testing.T, dir string){
	func(t *testing.T, dir string) { repo.Write(t, "hardware: {name: no such device}\n", dir, "run.yaml") },
	func(t *testing.T, dir string) { noErr(t, os.Remove(filepath.Join(dir, "config.json"))) },
	func(t *testing.T, dir string) { noErr(t, os.Remove(filepath.Join(dir, "traces.jsonl"))) },
	func(t *testing.T, dir string) { repo.Write(t, "{\"resourceSpans\":[]}\n", dir, "traces.jsonl") },
	func(t *testing.T, dir string) {
		repo.Write(t, "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03cut", dir, "traces.jsonl")
	},
}

// manyRuns writes n run folders, of which those of spoil are bad, and returns the ids of these.
func manyRuns(t *testing.T, n int) (parent string, bad []string) {
	parent = t.TempDir()
	smoke := filepath.Join(repo.Root(t), "testdata", "traces", "smoke")
	for i := range n {
		id := fmt.Sprintf("run%02d", i)
		for _, name := range []string{"run.yaml", "config.json", "traces.jsonl", "kv_events.jsonl"} {
			text := repo.Read(t, smoke, name)
			if name == "run.yaml" {
				text = bytes.Replace(text, []byte(`name: "smoke"`), []byte("name: "+id), 1)
			}
			repo.Write(t, string(text), parent, id, name)
		}
		if k := i - 1; k >= 0 && k < len(spoil) {
			spoil[k](t, filepath.Join(parent, id))
			bad = append(bad, id)
		}
	}
	return parent, bad
}

// program runs the command in this process.
func program(args ...string) (code int, out, talk string) {
	var stdout, stderr bytes.Buffer
	code = run(append([]string{"blis-train"}, args...), nil, &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// testBadRuns: bad runs among others end no extraction. They are told of, what goes on without them
// is named, the exit status is 1; and what they leave is that of the others alone.
func testBadRuns(t *testing.T, n int) {
	parent, bad := manyRuns(t, n)
	out := func(name string) string { return filepath.Join(parent, "..", name) }
	exclude := func(ids []string) (flags []string) {
		for _, id := range ids {
			flags = append(flags, "--exclude", id)
		}
		return flags
	}
	told := func(what string, code int, talk string, ids []string) {
		t.Helper()
		for _, id := range ids {
			if strings.Count(talk, id) < 2 {
				t.Errorf("%s: nothing of %s in:\n%s", what, id, talk)
			}
		}
		if want := strings.Join(exclude(ids), " "); code != exitFailed || !strings.Contains(talk, want) {
			t.Errorf("%s: exit %d, want 1 and %q:\n%s", what, code, want, talk)
		}
	}
	document := func(dir string) string { return string(repo.Read(t, out(dir), "extract.json")) }
	parts := func(text string) string { // without what names the bad runs, and digests over it
		return regexp.MustCompile(`(?s),\s*"left_out": \[.*?\]|"document_digest": "[0-9a-f]*"`).ReplaceAllString(text, "")
	}

	for _, workers := range []string{"1", "3"} {
		code, _, talk := program("extract", parent, "-o", out("all"+workers), "-q", "--workers", workers)
		told("extract", code, talk, bad)
	}
	if document("all1") != document("all3") || strings.Count(document("all1"), `"folder": "run`) != n-len(bad) {
		t.Errorf("the documents of 1 and 3 workers differ, or have not %d runs", n-len(bad))
	}
	code, _, talk := program(append([]string{"extract", parent, "-o", out("good"), "-q"}, exclude(bad)...)...)
	if code != exitOK || parts(document("good")) != parts(document("all1")) || document("good") == document("all1") {
		t.Errorf("exit %d with --exclude, another document but for the names of the bad runs, or the same one: %s", code, talk)
	}
	if code, _, talk = program("fit", out("all1"), "-o", out("fit"), "-q"); code != exitOK || !strings.Contains(talk, "could not be extracted and are missing: "+bad[0]) {
		t.Errorf("fit of what is left: exit %d, no word of it: %s", code, talk)
	}

	code, _, talk = program("run", parent, "-o", out("run"), "-q")
	told("run", code, talk, bad)
	if _, err := os.Stat(filepath.Join(out("run"), "fit.json")); err == nil {
		t.Error("run has fitted the runs that were left")
	}
	code, _, talk = program(append([]string{"run", parent, "-o", out("run"), "-q"}, exclude(bad)...)...)
	if code != exitOK && code != exitGate {
		t.Errorf("run with --exclude: exit %d: %s", code, talk)
	}
	code, _, talk = program("plan", parent, "-o", out("job"), "-q")
	told("plan", code, talk, bad[:3])
	code, ids, talk := program(append([]string{"plan", parent, "-o", out("job"), "-q"}, exclude(bad[:3])...)...)
	if code != exitOK {
		t.Fatalf("plan with --exclude: exit %d: %s", code, talk)
	}
	flags, excluded := []string{}, false
	for range 12 {
		for _, id := range strings.Fields(ids) {
			if code, _, talk := program("task", out("job"), id, "-q"); (code != exitOK) != slices.ContainsFunc(bad, func(id string) bool {
				return strings.Contains(talk, id)
			}) {
				t.Fatalf("task %s: exit %d: %s", id, code, talk)
			}
		}
		if code, ids, talk = program(append([]string{"collect", out("job"), "-q"}, flags...)...); code == exitFailed && !excluded {
			told("collect", code, talk, bad[3:])
			flags, excluded = exclude(bad[3:]), true
			_, ids, _ = program(append([]string{"collect", out("job"), "-q"}, flags...)...)
		}
		if ids == "" {
			break
		}
	}
	for _, name := range []string{"extract.json", "fit.json", "coefficients.yaml", "validation.json"} {
		if !excluded || !bytes.Equal(repo.Read(t, out("job"), "out", name), repo.Read(t, out("run"), name)) {
			t.Errorf("plan and collect: %s differs from that of run, or no bad run ended a pass (exit %d): %s", name, code, talk)
		}
	}
}

func TestBadRunsAmongOthers(t *testing.T) { testBadRuns(t, 8) }

// TestEvalBadRuns is the same on fifty runs.
func TestEvalBadRuns(t *testing.T) {
	repo.NeedEval(t)
	testBadRuns(t, 50)
}

// TestRunYAMLAgainstTheRecording: what the log of a server, or its steps, say otherwise than run.yaml is a warning with the
// key; pages of one line that cannot be are told too. The sound folder has none.
func TestRunYAMLAgainstTheRecording(t *testing.T) {
	log, err := zstd.NewReader(nil)
	noErr(t, err)
	stock := filepath.Join(repo.Root(t), "testdata", "traces", "stock")
	smoke := filepath.Join(repo.Root(t), "testdata", "traces", "smoke")
	text, err := log.DecodeAll(repo.Read(t, stock, "server.log.zst"), nil)
	noErr(t, err)
	lines := strings.Split(string(text), "\n")[:900]
	const iteration = "Iteration(500)"
	for _, c := range []struct{ from, file, old, new, says string }{
		{stock, "run.yaml", "name: stock", "name: stock", ""}, {smoke, "run.yaml", "name:", "name:", ""},
		{stock, "run.yaml", "max_num_seqs: 16", "max_num_seqs: 1024", "vllm.max_num_seqs: the log says 16, run.yaml 1024"},
		{stock, "run.yaml", "max_num_batched_tokens: 1024", "max_num_batched_tokens: 100", "vllm.max_num_batched_tokens: run.yaml says 100, "},
		{stock, "run.yaml", "max_model_len: 4096", "max_model_len: 9000", "vllm.max_model_len: the log says 4096"},
		{stock, "run.yaml", "version: 0.32.0", "version: 0.11.0", "vllm.version: the log says 0.32.0"},
		{stock, "run.yaml", "block_size: 128", "block_size: 16", "vllm.block_size: the log says 128"},
		{stock, "run.yaml", "kv_blocks_total_gpu: 1024", "kv_blocks_total_gpu: 10", "vllm.kv_blocks_total_gpu: the log says 1023"},
		{stock, "run.yaml", "kv_cache_dtype: bfloat16", "kv_cache_dtype: fp8", "model.kv_cache_dtype: the log says auto"},
		{stock, "run.yaml", "enable_prefix_caching: true", "enable_prefix_caching: false", "vllm.enable_prefix_caching: the log says true"},
		{stock, "run.yaml", "data_parallel_size: 1", "data_parallel_size: 2", "data_parallel_size: the log says 1"},
		{stock, "server.log", "tensor_parallel_size=1", "tensor_parallel_size=4", "tensor_parallel_size: the log says 4"},
		{stock, "server.log", "dtype=torch.bfloat16", "dtype=torch.float32", "model.dtype: the log says float32"},
		{stock, "run.yaml", "name: xeon-amx-1core", "name: H100", "hardware.name: the log says vLLM's CPU back end"},
		{stock, "run.yaml", "scheduling_policy: fcfs", "scheduling_policy: priority", "vllm.scheduling_policy: the log says fcfs"},
		{stock, "server.log", iteration, "Iteration(500.5)", "got a torn iteration"},
		{stock, "server.log", "iteration elapsed time: 54.09 ms", "iteration elapsed time: 0.00 ms", "want at least 1 for a pass with tokens"},
		{smoke, "run.yaml", "max_num_seqs: 4", "max_num_seqs: 2", "vllm.max_num_seqs: run.yaml says 2, "},
		{smoke, "run.yaml", "max_num_batched_tokens: 128", "max_num_batched_tokens: 64", "vllm.max_num_batched_tokens: run.yaml says 64, "},
		{smoke, "run.yaml", "num_gpu_blocks_override: 39\n  kv_blocks_total_gpu: 38", "kv_blocks_total_gpu: 99",
			"vllm.kv_blocks_total_gpu: run.yaml says 99, 55 of 55 steps"},
	} {
		dir := t.TempDir()
		for _, name := range []string{"run.yaml", "config.json", "traces.jsonl", "kv_events.jsonl"} {
			if b, err := os.ReadFile(filepath.Join(c.from, name)); err == nil {
				repo.Write(t, string(b), dir, name)
			}
		}
		if c.from == stock {
			repo.Write(t, strings.Join(lines, "\n"), dir, "server.log")
		}
		was := string(repo.Read(t, dir, c.file))
		now := strings.Replace(was, c.old, c.new, 1)
		if now == was && c.says != "" {
			t.Fatalf("%s: nothing of %q", c.file, c.old)
		}
		repo.Write(t, now, dir, c.file)
		code, out, talk := program("extract", dir, "-o", filepath.Join(t.TempDir(), "out"), "--json", "--max-bad-frac", "1")
		if code != exitOK || !strings.Contains(out, c.says) || strings.Contains(out, "run_contradicted") && c.says == "" {
			t.Errorf("%s instead of %s: exit %d, want %q in the document: %s", c.new, c.old, code, c.says, talk)
		}
	}
}

func noErr(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
