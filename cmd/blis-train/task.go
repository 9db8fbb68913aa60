package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/pipeline/shard"
)

func taskCommand() *cli.Command {
	return &cli.Command{
		Usage:     "do one task of a plan, or one's share of a list of them",
		ArgsUsage: "DIR TASK | DIR --tasks-dir LIST --share I/N",
		Description: "Writes the task's files and then its receipt, under names that hold hashes of task and content. It may be\n" +
			"done twice, or killed: only whole files get their names. A task that fails leaves a receipt with the reason\n" +
			"and, of a mistake of ours, the stack. In a job array, number I of N does every N-th task of the list.\n\n" +
			"Example:\n   blis-train task job tables-0a1b",
		Flags: flags([]cli.Flag{&cli.IntFlag{Name: "workers", Usage: "`N` workers; 0 uses every core"},
			&cli.StringFlag{Name: "tasks-dir", Usage: "`LIST` of open tasks that plan or collect wrote"},
			&cli.StringFlag{Name: "share", Usage: "which tasks of the list: number `I/N` of an array, from 0", Value: "0/1"}}, talkFlags()),
		Action: withConsole(runTasks),
	}
}

func runTasks(c *cli.Context, con *console) error {
	var err error
	dir, list := c.Args().First(), c.String("tasks-dir")
	var ids []string
	switch {
	case list != "" && c.NArg() == 1:
		ids, err = shareOf(list, c.String("share"))
	case list == "" && c.NArg() == 2:
		ids = []string{c.Args().Get(1)}
	default:
		return usagef("task: got %d arguments, want DIR TASK, or DIR with --tasks-dir", c.NArg())
	}
	if err != nil {
		return err
	}
	done := []*shard.Receipt{}
	var errs []error
	for _, id := range ids {
		r, err := shard.DoTask(c.Context, dir, id, c.Int("workers"))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		con.sayf("task %s: %d files in %s", r.Task, len(r.Files), r.Folder)
		done = append(done, r)
	}
	return errors.Join(append(errs, con.document(done))...)
}

// shareOf are the tasks of a list that number i of n does, given as i/n.
func shareOf(list, share string) ([]string, error) {
	a, b, _ := strings.Cut(share, "/")
	i, errI := strconv.Atoi(a)
	n, errN := strconv.Atoi(b)
	if errI != nil || errN != nil || i < 0 || i >= n {
		return nil, usagef("--share: got %q, want I/N with 0 <= I < N", share)
	}
	if _, err := os.Stat(list); err != nil {
		return nil, fmt.Errorf("--tasks-dir: %w", err)
	}
	var ids []string
	for ; ; i += n {
		text, err := os.ReadFile(filepath.Join(list, strconv.Itoa(i)))
		if errors.Is(err, fs.ErrNotExist) {
			return ids, nil
		}
		if err != nil {
			return nil, err
		}
		ids = append(ids, strings.TrimSpace(string(text)))
	}
}
