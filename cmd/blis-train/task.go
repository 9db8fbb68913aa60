package main

// This file is the command task, which does tasks of a plan.

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/shard"
)

// taskCommand returns the command task.
func taskCommand() *cli.Command {
	return newCommand(&cli.Command{
		Name:      "task",
		ArgsUsage: "DIR TASK | DIR --tasks-dir LIST --share I/N",
		Usage:     "run one task of a plan, or one share of a list of tasks",
		Description: `Writes the task's files and then its receipt, under names that hold hashes of task and content. A task may be
run twice, or killed: only complete files get their final names. A task that fails leaves a receipt with the reason
and, for a bug of ours, the stack. In a job array, number I of N does every N-th task of the list.

Example:
   blis-train task job tables-0a1b`,
		Flags: []cli.Flag{
			workersFlag(nil),
			&cli.StringFlag{Name: "tasks-dir", Usage: "`LIST` of open tasks that plan or collect wrote"},
			&cli.StringFlag{Name: "share", Value: "0/1",
				Usage: "do this share of the tasks of the list: number `I/N` of an array, from 0"},
		},
	}, nil, runTasks)
}

// runTasks runs the task in the argument, or this process's share of the tasks in --tasks-dir.
func runTasks(c *cli.Context, con *console) error {
	var err error
	dir := c.Args().First()
	list := c.String("tasks-dir")
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
		con.infof("task %s: %d files in %s", r.Task, len(r.Files), r.Folder)
		done = append(done, r)
	}
	return errors.Join(append(errs, con.document(done))...)
}

// shareOf returns the tasks of a list that process i of n does; share is "i/n".
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
		text, err := files.Read(filepath.Join(list, strconv.Itoa(i)), 1<<20, false)
		if errors.Is(err, fs.ErrNotExist) {
			return ids, nil
		}
		if err != nil {
			return nil, err
		}
		id := strings.TrimSpace(string(text))
		if err := shard.CheckID(id); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(list, strconv.Itoa(i)), err)
		}
		ids = append(ids, id)
	}
}
