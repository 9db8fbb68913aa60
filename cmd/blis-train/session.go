package main

// This file keeps the locks on output folders until the program ends.

import (
	"log/slog"

	"github.com/blis-train/blis-train/result/folder"
)

// session has what lasts longer than the console of one command: the locks on its output folders,
// and how errors are printed.
type session struct {
	args     []string     // the words after the program
	releases []func()     // unlock the output folders
	log      *slog.Logger // writes errors with --log-format json; nil: text
	command  string       // the command, with its subcommand, as it was called; without arguments
}

// releaseFolders unlocks the output folders.
func (s *session) releaseFolders() {
	for _, release := range s.releases {
		release()
	}
}

// claimFolder locks an output folder until the command ends. force allows a folder with files of
// other programs.
func (con *console) claimFolder(dir string, force bool) error {
	release, err := folder.Claim(dir, force)
	if err == nil {
		con.session.releases = append(con.session.releases, release)
	}
	return err
}
