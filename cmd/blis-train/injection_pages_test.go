package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/option"
)

// This file parses back what is made of the help texts: the man page, the completion scripts and the words that
// complete.

// outputOf runs a command in this process and returns its standard output.
func outputOf(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr strings.Builder
	if code := run(append([]string{"blis-train"}, args...), strings.NewReader(""), &stdout, &stderr); code != exitOK {
		t.Fatalf("%v: exit %d: %s", args, code, stderr.String())
	}
	return stdout.String()
}

// roffPage is a man page as troff reads it.
type roffPage struct {
	sections    []string // titles of .SH
	subsections []string // titles of .SS
	text        string   // all the rest
}

var roffEscape = regexp.MustCompile(`\\(f[BIPR]|&|-|\\|e)`)

// parseRoff parses a man page. It is an error if a line is a request that the page has no use for, or has an escape
// that troff would carry out.
func parseRoff(page string) (roffPage, error) {
	var p roffPage
	for i, line := range strings.Split(page, "\n") {
		if rest := roffEscape.ReplaceAllString(line, ""); strings.Contains(rest, `\`) {
			return p, fmt.Errorf("line %d: an escape in %q", i+1, line)
		}
		text := roffEscape.ReplaceAllStringFunc(line, func(e string) string {
			switch e {
			case `\-`:
				return "-"
			case `\\`, `\e`:
				return `\`
			}
			return ""
		})
		request, title, _ := strings.Cut(line, " ")
		switch {
		case strings.HasPrefix(line, "'"):
			return p, fmt.Errorf("line %d: a request: %q", i+1, line)
		case !strings.HasPrefix(line, "."):
			p.text += text + "\n"
		case request == ".SH":
			p.sections = append(p.sections, title)
		case request == ".SS":
			p.subsections = append(p.subsections, title)
		case !slices.Contains([]string{".nh", ".TH", ".PP", ".EX", ".EE", ".TP"}, request):
			return p, fmt.Errorf("line %d: a request: %q", i+1, line)
		}
	}
	return p, nil
}

// lettersOf is a text without blanks, quotes, backquotes and punctuation, in which two layouts of it are equal.
func lettersOf(text string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(" \t\n`", r) {
			return -1
		}
		return r
	}, text)
}

// TestManPageParsesBack: the man page has the sections of our commands and no others, no line is a request that a
// help text made, and each text of the help is in it: none was taken for Markdown.
func TestManPageParsesBack(t *testing.T) {
	page, err := parseRoff(outputOf(t, "completion", "man"))
	if err != nil {
		t.Fatal(err)
	}
	sections := []string{"NAME", "SYNOPSIS", "DESCRIPTION", "GLOBAL OPTIONS", "COMMANDS"}
	var subsections []string
	for _, c := range newApp("", nil, nil, nil).Commands {
		if c.Name == "help" {
			continue
		}
		sections = append(sections, strings.Join(c.Names(), ", "))
		for _, s := range c.Subcommands {
			subsections = append(subsections, s.Name)
		}
	}
	sections = append(sections, "EXIT STATUS", "ENVIRONMENT", "FILES")
	if !slices.Equal(page.sections, sections) {
		t.Errorf("sections: got %q, want %q", page.sections, sections)
	}
	if !slices.Equal(page.subsections, subsections) {
		t.Errorf("subsections: got %q, want %q", page.subsections, subsections)
	}
	letters := lettersOf(page.text)
	texts := 0
	contains := func(of, text string) {
		if texts++; !strings.Contains(letters, lettersOf(text)) {
			t.Errorf("%s: the man page lacks %q", of, text)
		}
	}
	for _, l := range leaves() {
		for _, line := range strings.Split(l.Description, "\n") {
			contains(l.name, line)
		}
		for _, f := range l.Flags {
			contains(l.name, "--"+f.Names()[0])
			contains(l.name, option.Plain(f).(cli.DocGenerationFlag).GetUsage())
		}
	}
	if texts < 500 {
		t.Errorf("got %d texts of the help, want at least 500", texts)
	}
	if groff, err := exec.LookPath("groff"); err == nil {
		cmd := exec.Command(groff, "-man", "-ww", "-z")
		cmd.Stdin = strings.NewReader(outputOf(t, "completion", "man"))
		if said, err := cmd.CombinedOutput(); err != nil || len(said) > 0 {
			t.Errorf("groff: %v: %s", err, said)
		}
	}
}

// TestParseRoff: what a pasted text could do to a man page is found.
func TestParseRoff(t *testing.T) {
	for _, line := range []string{"\n.so /etc/passwd\n", "\n'br\n", "\n.SY x\n", `\*[x]`, `\X'x'`, `a\fXb`} {
		if _, err := parseRoff(".TH x 1\ntext" + line); err == nil {
			t.Errorf("%q: got no error", line)
		}
	}
}

// fishWords parses a line of a fish script, whose quoted texts have the escapes \' and \\ alone.
func fishWords(line string) ([]string, error) {
	var words []string
	word := ""
	inWord, inQuotes := false, false
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case inQuotes && c == '\\' && i+1 < len(line) && (line[i+1] == '\'' || line[i+1] == '\\'):
			i++
			word += line[i : i+1]
		case c == '\'':
			inWord = true
			inQuotes = !inQuotes
		case inQuotes:
			word += string(c)
		case c == ' ':
			if inWord {
				words = append(words, word)
			}
			word, inWord = "", false
		case strings.IndexByte("$();|&<>`\"\\#*?~{}[]\t", c) >= 0:
			return nil, fmt.Errorf("%q is not in quotes", c)
		default:
			inWord = true
			word += string(c)
		}
	}
	if inQuotes {
		return nil, fmt.Errorf("quotes do not end")
	}
	if inWord {
		words = append(words, word)
	}
	return words, nil
}

// TestCompletionScriptsParseBack: every line of the fish script that is made of help texts is one command complete,
// whose words are our names, flags and texts; shells that are here parse theirs.
func TestCompletionScriptsParseBack(t *testing.T) {
	usages := map[string]bool{"show help": true, "print the version": true}
	names := map[string]bool{}
	seen := map[*cli.Command]bool{} // once a command has run in this process, urfave's help is a subcommand of itself
	var collect func(commands []*cli.Command)
	collect = func(commands []*cli.Command) {
		for _, c := range commands {
			if seen[c] {
				continue
			}
			seen[c] = true
			usages[c.Usage] = true
			names[strings.Join(c.Names(), " ")] = true
			for _, f := range c.Flags {
				usages[option.Plain(f).(cli.DocGenerationFlag).GetUsage()] = true
			}
			collect(c.Subcommands)
		}
	}
	app := newApp("", nil, nil, nil)
	app.Setup()
	collect(app.Commands)
	script := outputOf(t, "completion", "fish")
	_, lines, _ := strings.Cut(script, "\nend\n")
	completed := 0
	for _, line := range strings.Split(strings.TrimSpace(lines), "\n") {
		words, err := fishWords(line)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		for i := 0; i < len(words); i++ {
			switch words[i] {
			case "complete", "-r", "-f":
			case "-c", "-n", "-l", "-s":
				i++
			case "-a":
				if i++; !names[words[i]] {
					t.Errorf("%s: got the command %q", line, words[i])
				}
			case "-d":
				if i++; !usages[words[i]] {
					t.Errorf("%s: got the text %q, which no help has", line, words[i])
				}
			default:
				t.Errorf("%s: got the word %q", line, words[i])
			}
		}
		completed++
	}
	if completed < 400 {
		t.Errorf("got %d completions, want at least 400", completed)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		path, err := exec.LookPath(shell)
		if err != nil {
			continue
		}
		file := filepath.Join(t.TempDir(), shell)
		if err := os.WriteFile(file, []byte(outputOf(t, "completion", shell)), 0o644); err != nil {
			t.Fatal(err)
		}
		if said, err := exec.Command(path, "-n", file).CombinedOutput(); err != nil || len(said) > 0 {
			t.Errorf("%s: %v: %s", shell, err, said)
		}
	}
}

// TestCompletedWordsAreWords: what a shell completes with, which bash expands once more, has no character that means
// something to it.
func TestCompletedWordsAreWords(t *testing.T) {
	plain := regexp.MustCompile(`^[A-Za-z0-9@][A-Za-z0-9@._/+:,=-]*$|^--?[A-Za-z0-9-]+$`)
	old := os.Args
	defer func() { os.Args = old }()
	words := 0
	try := func(args ...string) {
		os.Args = append(append([]string{"blis-train"}, args...), "--generate-bash-completion")
		for _, line := range strings.Split(strings.TrimSpace(outputOf(t, os.Args[1:]...)), "\n") {
			word, _, _ := strings.Cut(line, ":") // zsh's description follows
			if words++; line != "" && !plain.MatchString(word) {
				t.Errorf("%v: got the word %q", args, line)
			}
		}
	}
	try()
	for _, l := range leaves() {
		try(strings.Fields(l.name)...)
		try(append(strings.Fields(l.name), "--")...)
		for _, f := range l.Flags {
			try(append(strings.Fields(l.name), "--"+f.Names()[0])...)
		}
	}
	if words < 1000 {
		t.Errorf("got %d words, want at least 1000", words)
	}
}
