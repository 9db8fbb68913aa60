package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// claims are the output folders of one command, locked until it ends. The lock
// is on the folder itself: nothing is left behind, and a process that dies
// loses it.
type claims struct{ folders []*os.File }

func (c *claims) release() {
	for _, f := range c.folders {
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
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		f.Close()
		return &hinted{fmt.Errorf("%s: another blis-train is writing there", dir), "wait for it, or choose another folder with -o"}
	}
	con.claims.folders = append(con.claims.folders, f)
	return nil
}
