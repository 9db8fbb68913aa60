// Release builds everything a release has, offline from the module cache:
//
//	go run ./internal/release -o dist
//
// leaves in dist one archive a platform (stripped static binary, licence, README,
// changelog), a bill of materials beside each, an OCI image archive for two
// architectures, and SHA256SUMS over all of it. The same commit and Go version give the
// same bytes. Nothing is published: that is the business of whoever has the keys.
package main

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/blis-train/blis-train/pipeline/folder"
)

func main() {
	out := flag.String("o", "dist", "folder of the release; it may exist")
	only := flag.String("only", "", "build this platform alone, such as linux/amd64")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := buildAll(ctx, *out, *only, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

// target is a platform that is built for.
type target struct{ os, arch string }

func (t target) String() string { return t.os + "/" + t.arch }

// targets are the platforms of a release.
var targets = []target{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"},
	{"windows", "arm64"}}

// stamp is what a release says of itself.
type stamp struct {
	version, commit string
	date            time.Time
}

// buildAll writes the whole of it and says what each file weighs.
func buildAll(ctx context.Context, out, only string, say io.Writer) error {
	s, err := commitStamp(ctx)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o777); err != nil {
		return err
	}
	var made []string
	var layers []binary
	for _, t := range targets {
		if only != "" && only != t.String() {
			continue
		}
		bin := filepath.Join(out, ".build", t.os+"-"+t.arch, "blis-train"+suffix(t))
		if err := build(ctx, bin, t, s); err != nil {
			return err
		}
		files, err := pack(out, bin, t, s)
		if err != nil {
			return err
		}
		made = append(made, files...)
		if t.os == "linux" {
			layers = append(layers, binary{t, bin})
		}
	}
	if len(made) == 0 {
		return fmt.Errorf("-only: got %q, want one of %v", only, targets)
	}
	if len(layers) > 0 {
		name := filepath.Join(out, fmt.Sprintf("blis-train_%s_image.tar", s.version))
		if err := writeImage(name, layers, s); err != nil {
			return err
		}
		made = append(made, name)
	}
	if err := os.RemoveAll(filepath.Join(out, ".build")); err != nil {
		return err
	}
	return sums(out, made, say)
}

func suffix(t target) string {
	if t.os == "windows" {
		return ".exe"
	}
	return ""
}

// commitStamp is the commit of the working tree; without one, SOURCE_DATE_EPOCH, else 0, is
// the date, so that bytes never depend on the clock.
func commitStamp(ctx context.Context) (stamp, error) {
	s := stamp{version: folder.ToolVersion, commit: "unknown", date: time.Unix(0, 0).UTC()}
	text, err := exec.CommandContext(ctx, "git", "log", "-1", "--format=%H %ct").Output()
	if commit, seconds, ok := strings.Cut(strings.TrimSpace(string(text)), " "); err == nil && ok {
		s.commit = commit
		if n, err := strconv.ParseInt(seconds, 10, 64); err == nil {
			s.date = time.Unix(n, 0).UTC()
		}
	}
	if v := os.Getenv("SOURCE_DATE_EPOCH"); v != "" {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return s, fmt.Errorf("SOURCE_DATE_EPOCH: got %q, want seconds since 1970", v)
		}
		s.date = time.Unix(n, 0).UTC()
	}
	return s, nil
}

// buildTags leave out of a release what no command of ours reaches: the second JSON
// library that Arrow links, unless it is built as for TinyGo, and the Markdown that the
// command library makes manuals of (docs/decisions/0021-release.md).
const buildTags = "tinygo,urfave_cli_no_docs"

// linkerFlags strip the binary, pack functions on 16 bytes, and stamp it;
// .goreleaser.yaml has the same.
func linkerFlags(s stamp) string {
	return fmt.Sprintf("-s -w -funcalign=16 -X main.releaseCommit=%s -X main.releaseDate=%s", s.commit, s.date.Format(time.RFC3339))
}

// coldLibraries run a few times a command at most, so their functions are compiled without
// inlining, which makes the binary smaller (docs/decisions/0021-release.md).
var coldLibraries = []string{"github.com/andybalholm/brotli/...", "github.com/apache/thrift/...",
	"github.com/apache/arrow/go/v17/parquet/internal/gen-go/...", "github.com/jedib0t/go-pretty/v6/...", "github.com/json-iterator/go",
	"github.com/urfave/cli/v2", "go.opentelemetry.io/...", "golang.org/x/text/..."}

// build makes one static binary from the module cache alone.
func build(ctx context.Context, bin string, t target, s stamp) error {
	args := []string{"build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-tags", buildTags, "-ldflags", linkerFlags(s), "-o", bin}
	for _, name := range coldLibraries {
		args = append(args, "-gcflags="+name+"=-l")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/blis-train")...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOPROXY=off", "GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0", "GOOS="+t.os, "GOARCH="+t.arch)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", t, err, text)
	}
	return nil
}

// sums writes SHA256SUMS, sorted by name, and prints sizes.
func sums(out string, files []string, say io.Writer) error {
	slices.Sort(files)
	var b strings.Builder
	for _, f := range files {
		sum, n, err := sumOf(f)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%x  %s\n", sum, filepath.Base(f))
		fmt.Fprintf(say, "%9.1f MB  %s\n", float64(n)/1e6, filepath.Base(f))
	}
	return os.WriteFile(filepath.Join(out, "SHA256SUMS"), []byte(b.String()), 0o644)
}

func sumOf(path string) ([]byte, int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	return h.Sum(nil), n, err
}
