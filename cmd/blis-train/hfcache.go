package main

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
)

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
	there := func(path string) bool { st, err := os.Stat(path); return err == nil && st.Mode().IsRegular() }
	if path := filepath.Join(id, "config.json"); there(path) {
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
	if path := filepath.Join(model, "snapshots", revision, "config.json"); filepath.IsLocal(revision) && there(path) {
		return path
	}
	return ""
}

// modelConfig gives the draft the model's config.json: as stated, one beside the
// file to write, else one on this machine, which is copied there. It says what the
// file says of the model, nil where it cannot be read.
func (con *console) modelConfig(draft *deploy.Draft, out string) (*deploy.Model, error) {
	const name = "config.json"
	dir := filepath.Dir(out)
	id, _ := draft.Get("model.id").(string)
	given, _ := draft.Get("model.config").(string)
	path := filepath.Join(dir, name)
	switch {
	case filepath.IsAbs(given):
		path = given
	case given != "":
		path = filepath.Join(dir, given)
	default:
		if _, err := os.Stat(path); err == nil {
			draft.Set("model.config", name)
			break
		}
		revision, _ := draft.Get("vllm.revision").(string)
		if path = cachedConfig(id, revision); path == "" {
			return nil, nil
		}
		if out == "" {
			con.sayf("%s is the model's config.json: copy it beside run.yaml, or use -o", path)
			break
		}
		text, err := files.Read(path, 1<<24, false)
		if err == nil {
			err = os.MkdirAll(dir, 0o777)
		}
		if err == nil {
			err = files.Write(filepath.Join(dir, name), text)
		}
		if err != nil {
			return nil, err
		}
		con.sayf("copied %s", path)
		draft.SetNoted("model.config", name, "copied from this machine's cache")
	}
	return con.readModel(draft, path, id), nil
}

// readModel reads what the config says. A file that cannot be read or is refused is
// a warning here: init never blocks.
func (con *console) readModel(draft *deploy.Draft, path, id string) *deploy.Model {
	f, err := files.Open(path, false)
	if err != nil {
		return nil
	}
	defer f.Close()
	model, err := deploy.LoadModel(f, path, draft.ModelOptions())
	if err != nil {
		con.warn(deploy.RefusedModel(err))
		return nil
	}
	model.ID = cmp.Or(model.ID, id, model.ModelType)
	return &model
}
