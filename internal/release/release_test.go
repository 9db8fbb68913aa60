package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/internal/repo"
)

var someday = stamp{version: "1.2.3", commit: "abc", date: time.Unix(1_700_000_000, 0).UTC()}

// unpacked is a tar file by name.
func unpacked(t *testing.T, r io.Reader) (names []string, files map[string][]byte) {
	t.Helper()
	files = map[string][]byte{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return names, files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		names, files[h.Name] = append(names, h.Name), text
	}
}

func opened[T any](t *testing.T, files map[string][]byte, d v1.Descriptor) (out T) {
	t.Helper()
	text := files["blobs/sha256/"+d.Digest.Encoded()]
	if digest.FromBytes(text) != d.Digest || int64(len(text)) != d.Size {
		t.Fatalf("%s: the blob is not what its descriptor says", d.Digest)
	}
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestImage: one image a platform, of one layer with one binary and no shell, for a user
// that is not root; every digest holds; the same input gives the same bytes.
func TestImage(t *testing.T) {
	dir := t.TempDir()
	var binaries []binary
	for _, arch := range []string{"amd64", "arm64"} {
		path := filepath.Join(dir, "blis-train-"+arch)
		if err := os.WriteFile(path, []byte("binary for "+arch), 0o755); err != nil {
			t.Fatal(err)
		}
		binaries = append(binaries, binary{target{"linux", arch}, path})
	}
	name := filepath.Join(dir, "image.tar")
	if err := writeImage(name, binaries, someday); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	_, files := unpacked(t, bytes.NewReader(text))
	if !strings.Contains(string(files["oci-layout"]), `"imageLayoutVersion":"1.0.0"`) {
		t.Errorf("oci-layout: got %s", files["oci-layout"])
	}
	var top v1.Index
	if err := json.Unmarshal(files["index.json"], &top); err != nil || len(top.Manifests) != 1 {
		t.Fatalf("index.json: %v, %d entries", err, len(top.Manifests))
	}
	if got := top.Manifests[0].Annotations[v1.AnnotationRefName]; got != "blis-train:1.2.3" {
		t.Errorf("the image is called %q, want what docs/install.md runs", got)
	}
	index := opened[v1.Index](t, files, top.Manifests[0])
	if len(index.Manifests) != 2 {
		t.Fatalf("got %d images, want 2", len(index.Manifests))
	}
	for i, d := range index.Manifests {
		m := opened[v1.Manifest](t, files, d)
		c := opened[v1.Image](t, files, m.Config)
		if c.Architecture != binaries[i].arch || d.Platform.Architecture != c.Architecture || c.OS != "linux" {
			t.Errorf("image %d is for %s/%s", i, c.OS, c.Architecture)
		}
		if c.Config.User != "65532:65532" || !slices.Equal(c.Config.Entrypoint, []string{"/blis-train"}) {
			t.Errorf("user %q, entry point %q", c.Config.User, c.Config.Entrypoint)
		}
		if len(m.Layers) != 1 {
			t.Fatalf("got %d layers, want 1", len(m.Layers))
		}
		z, err := gzip.NewReader(bytes.NewReader(files["blobs/sha256/"+m.Layers[0].Digest.Encoded()]))
		if err != nil {
			t.Fatal(err)
		}
		plain, err := io.ReadAll(z)
		if err != nil || digest.FromBytes(plain) != c.RootFS.DiffIDs[0] {
			t.Fatalf("the layer is not the one of rootfs: %v", err)
		}
		if names, held := unpacked(t, bytes.NewReader(plain)); !slices.Equal(names, []string{"tmp/", "blis-train"}) ||
			string(held["blis-train"]) != "binary for "+c.Architecture {
			t.Errorf("the layer holds %v", names)
		}
	}
	again := filepath.Join(dir, "again.tar")
	if err := writeImage(again, binaries, someday); err != nil {
		t.Fatal(err)
	}
	if second, err := os.ReadFile(again); err != nil || !bytes.Equal(text, second) {
		t.Errorf("two images of the same binaries differ (%v)", err)
	}
}

// TestBOM: the bill of materials names what is linked, with versions, and is the same
// twice.
func TestBOM(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	b := bomOf(info, someday)
	for _, p := range b.Components {
		if p.Name == "github.com/opencontainers/image-spec" && strings.HasPrefix(p.PURL, "pkg:golang/github.com/opencontainers/image-spec@v1") {
			return
		}
	}
	t.Errorf("image-spec, which this test links, is not among %d components", len(b.Components))
}

// TestGoReleaser: .goreleaser.yaml builds what this program builds.
func TestGoReleaser(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repo.Root(t), ".goreleaser.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		Builds []struct {
			Main, Binary       string
			Env, Flags, Tags   []string
			Gcflags            []string
			Ldflags            []string
			Goos, Goarch       []string
			Goamd64            []string
			ModTimestamp       string `yaml:"mod_timestamp"`
			Ignore             []any
			NoUniqueDistDirAny any `yaml:"no_unique_dist_dir"`
		}
		Archives []struct{ Files []string }
		SBOMs    []any `yaml:"sboms"`
		Checksum struct{ Algorithm string }
	}
	if err := yaml.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	if len(c.Builds) != 1 || len(c.Archives) != 1 || len(c.SBOMs) != 1 || c.Checksum.Algorithm != "sha256" {
		t.Fatalf("got %d builds, %d archives, %d bills of materials, checksums by %q", len(c.Builds), len(c.Archives), len(c.SBOMs),
			c.Checksum.Algorithm)
	}
	b := c.Builds[0]
	for _, o := range targets {
		if !slices.Contains(b.Goos, o.os) || !slices.Contains(b.Goarch, o.arch) {
			t.Errorf("no %s", o)
		}
	}
	if len(b.Goos)*len(b.Goarch) != len(targets) || b.Main != "./cmd/blis-train" || !slices.Contains(b.Env, "CGO_ENABLED=0") ||
		!slices.Contains(b.Flags, "-trimpath") {
		t.Errorf("builds: got %+v", b)
	}
	want := strings.NewReplacer(someday.commit, "{{.FullCommit}}", someday.date.Format(time.RFC3339), "{{.CommitDate}}").Replace(
		linkerFlags(someday))
	if got := strings.Join(b.Ldflags, " "); got != want {
		t.Errorf("ldflags: got %q, want %q", got, want)
	}
	if got := strings.Join(b.Tags, ","); got != buildTags {
		t.Errorf("tags: got %q, want %q", got, buildTags)
	}
	var cold []string
	for _, name := range coldLibraries {
		cold = append(cold, name+"=-l")
	}
	if !slices.Equal(b.Gcflags, cold) {
		t.Errorf("gcflags: got %q, want %q", b.Gcflags, cold)
	}
	for _, p := range papers {
		if !slices.Contains(c.Archives[0].Files, p) {
			t.Errorf("the archive lacks %s", p)
		}
	}
}

// TestTags: the tags of a release change two rooms of Arrow and the command library's
// manuals, and leave modules out; every other file is the one that the tests run.
func TestTags(t *testing.T) {
	t.Chdir(repo.Root(t))
	files := func(tags string) map[string]string {
		cmd := exec.Command("go", "list", "-deps", "-tags", tags, "-f", "{{.ImportPath}} {{.GoFiles}}", "./cmd/blis-train")
		text, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v", cmd.Args, err)
		}
		out := map[string]string{}
		for line := range strings.Lines(string(text)) {
			name, list, _ := strings.Cut(line, " ")
			out[name] = list
		}
		return out
	}
	const arrow, manuals = "github.com/apache/arrow/go/v17/", "github.com/urfave/cli/v2"
	plain, tagged := files(""), files(buildTags)
	if len(plain) < 100 || len(tagged) >= len(plain) {
		t.Errorf("got %d packages, %d with the tags", len(plain), len(tagged))
	}
	for name, list := range tagged {
		switch was, ok := plain[name]; {
		case !ok:
			t.Errorf("%s is linked with the tags alone", name)
		case was != list && name != arrow+"internal/json" && name != arrow+"arrow/memory" && name != manuals:
			t.Errorf("%s: the tags change its files: %s, without them %s", name, list, was)
		}
	}
}

// What a stripped binary may weigh, in bytes: as a release builds it, and from the packages
// that the tests have built, without the tags and flags that a release takes and with the
// machine's paths.
const largestBinary, largestUntagged = 30_000_000, 32_300_000

// TestSize links what is built anyway, so that weight is seen before a release weighs it.
func TestSize(t *testing.T) {
	t.Chdir(repo.Root(t))
	name := filepath.Join(t.TempDir(), "blis-train")
	cmd := exec.Command("go", "build", "-ldflags", linkerFlags(someday), "-o", name, "./cmd/blis-train")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if st, err := os.Stat(name); err != nil || st.Size() > largestUntagged {
		t.Errorf("the binary weighs %d bytes (%v), want at most %d: see docs/decisions/0021-release.md", st.Size(), err, largestUntagged)
	}
}

// TestEvalRelease builds a whole release offline, prints sizes, and starts the image with a
// read-only root where a container runtime answers.
func TestEvalRelease(t *testing.T) {
	repo.NeedEval(t)
	t.Chdir(repo.Root(t))
	out := t.TempDir()
	var said bytes.Buffer
	if err := buildAll(context.Background(), out, "", &said); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", said.String())
	for pattern, want := range map[string]int{"*.tar.gz": 4, "*.zip": 2, "*.cdx.json": len(targets), "*_image.tar": 1, "SHA256SUMS": 1} {
		if files, err := filepath.Glob(filepath.Join(out, pattern)); err != nil || len(files) != want {
			t.Errorf("%s: got %q (%v), want %d", pattern, files, err, want)
		}
	}
	s, err := commitStamp(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(out, "blis-train")
	if err := build(context.Background(), bin, target{"linux", "amd64"}, s); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(bin)
	if err != nil || st.Size() > largestBinary {
		t.Errorf("the binary weighs %d bytes (%v), want at most %d", st.Size(), err, largestBinary)
	}
	t.Logf("stripped linux/amd64: %.2f MB", float64(st.Size())/1e6)
	if text, err := exec.Command(bin, "--version").Output(); err != nil || !strings.Contains(string(text), "commit "+s.commit+", ") {
		t.Errorf("--version: %s %v, want commit %s", text, err, s.commit)
	}
	startImage(t, filepath.Join(out, "blis-train_"+s.version+"_image.tar"), s)
}

// startImage runs the image with a read-only root and no network by the first runtime that
// can, and says which.
func startImage(t *testing.T, image string, s stamp) {
	t.Helper()
	bundle := unpackedImage(t, image)
	root := filepath.Join(bundle, "rootfs")
	var failed []string
	for _, way := range [][]string{
		{"sh", "-c", "podman load -q -i $0 && podman run --rm --read-only --network=none $1 --version", image, "localhost/" + imageName(s)},
		{"sh", "-c", "docker load -q -i $0 && docker run --rm --read-only --network=none $1 --version", image, imageName(s)},
		{"runc", "--root", t.TempDir(), "run", "--bundle", bundle, "blis-train-test"},
		{"unshare", "--map-root-user", "--mount", "--net", "sh", "-c", "mount --bind $0 $0 && mount -o remount,bind,ro $0 && " +
			"! touch $0/x 2>&- && exec unshare --map-user=65532 --map-group=65532 --root=$0 /blis-train --version", root},
	} {
		text, err := exec.Command(way[0], way[1:]...).CombinedOutput()
		if err == nil && strings.Contains(string(text), s.commit) {
			t.Logf("started read-only as user 65532 by %s: %s", way, text)
			return
		}
		failed = append(failed, fmt.Sprintf("%s: %v: %s", way[0], err, text))
	}
	t.Skipf("no container runtime here started the image:\n%s", strings.Join(failed, "\n"))
}

// unpackedImage is a bundle of the image for this machine (runtime-spec 1.0): the files of
// its layer under rootfs, and config.json with its user and entry point.
func unpackedImage(t *testing.T, image string) string {
	t.Helper()
	f, err := os.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, files := unpacked(t, f)
	var top v1.Index
	if err := json.Unmarshal(files["index.json"], &top); err != nil {
		t.Fatal(err)
	}
	m := opened[v1.Manifest](t, files, opened[v1.Index](t, files, top.Manifests[0]).Manifests[0])
	c := opened[v1.Image](t, files, m.Config)
	z, err := gzip.NewReader(bytes.NewReader(files["blobs/sha256/"+m.Layers[0].Digest.Encoded()]))
	if err != nil {
		t.Fatal(err)
	}
	names, layer := unpacked(t, z)
	bundle := t.TempDir()
	for _, name := range names {
		path := filepath.Join(bundle, "rootfs", name)
		if strings.HasSuffix(name, "/") {
			err = os.MkdirAll(path, 0o777)
		} else {
			err = os.WriteFile(path, layer[name], 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var user struct {
		UID int `json:"uid"`
		GID int `json:"gid"`
	}
	if _, err := fmt.Sscanf(c.Config.User, "%d:%d", &user.UID, &user.GID); err != nil {
		t.Fatal(err)
	}
	type object map[string]any
	text, err := json.Marshal(object{
		"ociVersion": "1.0.2", "root": object{"path": "rootfs", "readonly": true},
		"process": object{"args": append(c.Config.Entrypoint, "--version"), "cwd": c.Config.WorkingDir, "user": user, "noNewPrivileges": true},
		"mounts":  []object{{"destination": "/proc", "type": "proc", "source": "proc"}},
		"linux":   object{"namespaces": []object{{"type": "pid"}, {"type": "mount"}, {"type": "network"}, {"type": "ipc"}, {"type": "uts"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	// the layer has no /proc, as images have none; the runtime needs the place
	if err := os.MkdirAll(filepath.Join(bundle, "rootfs", "proc"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	return bundle
}
