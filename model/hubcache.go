package model

// This file finds the config.json of a model that Hugging Face's client has downloaded.

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
)

// FindConfig returns the path of the config.json of a model that is on this machine: in the folder
// that id names, or in the cache of Hugging Face's client at a revision ("" for main). It is "" if
// there is none.
func FindConfig(id, revision string) string {
	if id == "" {
		return ""
	}
	if path := filepath.Join(id, "config.json"); isFile(path) {
		return path
	}
	if !filepath.IsLocal(filepath.FromSlash(id)) || strings.Count(id, "/") > 1 {
		return ""
	}
	repository := filepath.Join(hubFolder(), "models--"+strings.ReplaceAll(id, "/", "--"))
	revision = cmp.Or(revision, "main")
	if !filepath.IsLocal(revision) {
		return ""
	}
	// A branch or tag is a file that contains the commit, whose files are in a folder of its name.
	if commit, err := files.Read(filepath.Join(repository, "refs", revision), 1<<10, false); err == nil {
		revision = strings.TrimSpace(string(commit))
	}
	path := filepath.Join(repository, "snapshots", revision, "config.json")
	if filepath.IsLocal(revision) && isFile(path) {
		return path
	}
	return ""
}

// hubFolder returns the folder in which Hugging Face's client keeps its downloads (huggingface_hub,
// "Environment variables").
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

// isFile reports whether a path is a regular file.
func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}
