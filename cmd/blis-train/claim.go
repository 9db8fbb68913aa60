package main

import (
	"log/slog"

	"github.com/blis-train/blis-train/pipeline/folder"
)

// session is what outlives the console of a command: the output folders that it
// alone may write to, and how it logs.
type session struct {
	releases []func()
	log      *slog.Logger // nil: text
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
