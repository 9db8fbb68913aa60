package features_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/blis-train/blis-train/internal/repo"
)

// self is this file, which the copied tree must not have: it would copy itself again.
const self = "contributing_test.go"

// TestFirstChangeOfContributing does in a copied tree what CONTRIBUTING's "Your first change" says,
// block by block, up to the first command that it ends with: this package's tests.
func TestFirstChangeOfContributing(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: -short")
	}
	dir, commands := firstChange(t)
	execute(t, dir, strings.Fields(commands[0]))
}

// TestEvalFirstChangeOfContributing runs the other commands too, which build the program and fit the
// demo. Instead of go run for each command, the program is built once.
func TestEvalFirstChangeOfContributing(t *testing.T) {
	repo.NeedEval(t)
	start := time.Now()
	dir, commands := firstChange(t)
	const goRun, program = "go run ./cmd/blis-train ", "./blis-train "
	execute(t, dir, strings.Fields("go build -o "+program+"./cmd/blis-train"))
	for _, line := range commands[1:] {
		execute(t, dir, strings.Fields(strings.Replace(line, goRun, program, 1)))
	}
	t.Logf("took %.0f s", time.Since(start).Seconds())
}

// firstChange copies the tree, does the steps of the page in it, and returns the folder and the
// commands of the last step.
func firstChange(t *testing.T) (dir string, commands []string) {
	t.Helper()
	root := repo.Root(t)
	dir = t.TempDir()
	copyTree(t, root, dir)
	page := repo.Read(t, root, "CONTRIBUTING.md")
	_, section, _ := strings.Cut(string(page), "## Your first change")
	section, _, _ = strings.Cut(section, "\n## ")
	steps := regexp.MustCompile("(?ms)^\\d\\. \\*\\*[^\n]*?(?:`(pipeline/[^`]+)`[^\n]*)?\n   ```(go|sh)\n(.*?)   ```$").
		FindAllStringSubmatch(section, -1)
	if len(steps) != 4 {
		t.Fatalf("got %d steps with a code block, want 4", len(steps))
	}
	for _, step := range steps {
		path := filepath.Join(dir, step[1])
		kind := step[2]
		text := strings.ReplaceAll("\n"+step[3], "\n   ", "\n")[1:]
		switch {
		case kind == "sh":
			commands = strings.Split(strings.TrimSpace(text), "\n")
		case step[1] != "pipeline/features/list.go":
			repo.Write(t, text, path)
		default:
			list := repo.Read(t, path)
			if strings.Contains(string(list), text) { // somebody follows the page in this very tree
				continue
			}
			at := strings.Index(string(list), "var experimental ")
			at += strings.Index(string(list[at:]), "beta:")
			at += strings.Index(string(list[at:]), "\n\t},") + 1
			repo.Write(t, string(list[:at])+"\t\t"+text+string(list[at:]), path)
		}
	}
	return dir, commands
}

// execute runs a command of the page as it stands; paths out of the binary make the build cache serve both trees. Tests that
// say nothing of a new feature are left out.
func execute(t *testing.T, dir string, words []string) {
	t.Helper()
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=-trimpath -vet=off -buildvcs=false -short")
	if words[0] == "go" && words[1] != "test" {
		cmd.Env = append(os.Environ(), "GOFLAGS=-trimpath -buildvcs=false -ldflags=-w")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(words, " "), err, out)
	}
}

// copyTree copies what the program is built of, this package's tests and the demo's recordings.
func copyTree(t *testing.T, root, dir string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		base := filepath.Base(name)
		if d.IsDir() {
			if name != "." && strings.HasPrefix(base, ".") || name == "beam" || name == "eval" || name == "testdata" {
				return filepath.SkipDir
			}
			return nil
		}
		ours := filepath.Dir(name) == filepath.Join("pipeline", "features")
		if isTest := strings.HasSuffix(base, "_test.go"); !d.Type().IsRegular() || base == self || isTest && !ours {
			return nil
		}
		return copyFile(path, filepath.Join(dir, name))
	})
	demo := filepath.Join("testdata", "traces", "demo")
	if err == nil {
		err = os.CopyFS(filepath.Join(dir, demo), os.DirFS(filepath.Join(root, demo)))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o755)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}
