package main

import (
	"fmt"
	"log/slog"
	"os"
)

// session is what outlives the console of a command: its output folders, locked
// until it ends, and how it logs. The lock is on the folder itself: nothing is
// left behind, and a process that dies loses it.
type session struct {
	folders []*os.File
	log     *slog.Logger // nil: text
}

func (s *session) release() {
	for _, f := range s.folders {
		f.Close()
	}
}

// claim is prepareOut for this command alone: until it ends, another blis-train
// is refused the folder. Where folders cannot be locked nobody is.
func (con *console) claim(dir string, force bool) error {
	if err := prepareOut(dir, force); err != nil {
		return err
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	if isTaken(f) {
		f.Close()
		return &hinted{fmt.Errorf("%s: another blis-train is writing there", dir), "wait for it, or choose another folder with -o"}
	}
	con.session.folders = append(con.session.folders, f)
	return nil
}
