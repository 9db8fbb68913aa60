package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/report"
	"github.com/urfave/cli/v2"
)

// Limits of what a user is asked to read.
const mostCommands, mostFlags = 28, 25

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
			t.Errorf("%s: got %d flags, want at most %d: make some keys of pipeline.yaml (commands.txt)", l.name, n, mostFlags)
		}
	}
}

// TestFlagsAreTested: every flag stands in a script, on a line that calls its command, or in a
// Go test that does. Commands that share a flag, with its help, share the test.
func TestFlagsAreTested(t *testing.T) {
	all, said := leaves(), map[string]bool{} // help of a flag, which has its name
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
				for _, l := range all {
					for _, f := range l.Flags {
						named := slices.ContainsFunc(f.Names(), func(n string) bool { return slices.Contains(given, n) })
						said[f.String()] = said[f.String()] || named && calls(part, l.name)
					}
				}
			}
		}
	}
	for _, l := range all {
		for _, f := range l.Flags {
			if !said[f.String()] {
				t.Errorf("%s --%s: in no script or test that calls the command", l.name, f.Names()[0])
			}
		}
	}
}

// calls reports whether a line of a script or of a test calls the command.
func calls(line, name string) bool {
	return strings.Contains(line, "blis-train "+name+" ") || strings.Contains(line, `"`+strings.ReplaceAll(name, " ", `", "`)+`"`)
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

// commandsPage is the page with its generated part made anew. Flags that `several` commands or more have alike stand in
// one table, and by name alone under their commands.
func commandsPage(old string) string {
	before, _, _ := strings.Cut(old, generatedBelow)
	var b strings.Builder
	b.WriteString(before + generatedBelow)
	const several = 3
	users, common := map[string]int{}, map[string]string{} // commands of a row; of a name, the row that most commands have
	for _, l := range leaves() {
		for _, f := range l.Flags {
			name, row := flagRow(f)[0], strings.Join(flagRow(f), "\t")
			if users[row]++; users[row] >= several && users[row] > users[common[name]] {
				common[name] = row
			}
		}
	}
	shared := report.NewTable("", "", "flag", "default", "meaning")
	for _, name := range slices.Sorted(maps.Keys(common)) {
		shared.Add(strings.Split(common[name], "\t")...)
	}
	b.WriteString("\n## Flags of several commands\n\n" + shared.Markdown(cell))
	for _, l := range leaves() {
		fmt.Fprintf(&b, "\n## %s\n\n%s. `%s`\n\n", l.name, sentence(l.Usage)[:len(sentence(l.Usage))-1],
			strings.TrimSpace("blis-train "+l.name+" "+strings.TrimSpace(l.ArgsUsage)))
		t, also := report.NewTable("", "", "flag", "default", "meaning"), []string{}
		for _, f := range l.Flags {
			if row := flagRow(f); common[row[0]] != strings.Join(row, "\t") {
				t.Add(row...)
			} else {
				also = append(also, row[0])
			}
		}
		if len(t.Rows) > 0 {
			b.WriteString(t.Markdown(cell))
		}
		if len(also) > 0 {
			if len(t.Rows) > 0 {
				b.WriteString("\n")
			}
			b.WriteString("[Shared](#flags-of-several-commands): " + strings.Join(also, ", ") + "\n")
		}
	}
	return b.String()
}

// flagRow is a flag as a page lists it: names, default, meaning.
func flagRow(f cli.Flag) []string {
	doc := f.(cli.DocGenerationFlag)
	_, usage, _ := strings.Cut(f.String(), "\t")
	usage, _, _ = strings.Cut(usage, " [$")
	value := doc.GetDefaultText()
	if value == "" {
		value = doc.GetValue()
	}
	usage = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(usage), "(default: "+value+")"))
	var names []string
	for _, n := range f.Names() {
		names = append(names, "`"+dashed(n)+"`")
	}
	return []string{strings.Join(names, ", "), plainDefault(value), usage}
}

// plainDefault is a default as a page says it: nothing where that is empty, or a switch off.
func plainDefault(value string) string {
	switch value {
	case "", "false", `""`, "[]":
		return ""
	}
	return strings.Trim(value, `"`)
}

// keysPage is the page with its generated part made anew: every option of every stage.
func keysPage(old string) string {
	before, _, _ := strings.Cut(old, generatedBelow)
	var b strings.Builder
	b.WriteString(before + generatedBelow)
	for _, command := range []string{"extract", "fit", "validate", "simulate", "export"} {
		for _, s := range stagesOf(command) {
			fmt.Fprintf(&b, "\n## %s\n\n", s.name)
			t := report.NewTable("", "", "key", "default", "flag of", "meaning")
			for _, o := range s.table {
				value := o.Shown
				if value == "" {
					value = fmt.Sprint(o.Default)
				}
				t.Add("`"+o.Name+"`", plainDefault(value), strings.Join(commandsWith(s.name, o.Name), ", "), strings.ReplaceAll(o.Usage, "`", ""))
			}
			b.WriteString(t.Markdown(cell))
		}
	}
	return b.String()
}

// commandsWith are the commands that read a group and have its option as a flag.
func commandsWith(group, name string) (all []string) {
	for _, c := range []string{"run", "plan", "extract", "inspect", "fit", "validate", "simulate", "export"} {
		for _, s := range stagesOf(c) {
			if s.name == group && len(s.table.Only(name)) > 0 && !isKey(c, name) {
				all = append(all, "`"+c+"`")
			}
		}
	}
	return all
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
