package main

import (
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/pipeline/shard"
)

func gcCommand() *cli.Command {
	return &cli.Command{
		Name:      "gc",
		Usage:     "list what killed and repeated tasks of a plan left over",
		ArgsUsage: "DIR",
		Description: "Half-written folders, folders without a receipt, damaged receipts, failures of tasks that were done in the\n" +
			"end. A task under way has a half-written folder too: --remove only when none is.\n\n" +
			"Example:\n   blis-train gc job --remove",
		Flags: flags([]cli.Flag{&cli.BoolFlag{Name: "remove", Usage: "remove what is listed"}}, talkFlags()),
		Action: func(c *cli.Context) error {
			con, err := newConsole(c)
			if err != nil {
				return err
			}
			if c.NArg() != 1 {
				return usagef("gc: got %d arguments, want one folder with a plan", c.NArg())
			}
			garbage, err := shard.Job{Dir: c.Args().First()}.Garbage()
			if err != nil {
				return err
			}
			if con.json {
				err = con.document(append([]string{}, garbage...))
			}
			for _, name := range garbage {
				if !con.json {
					fmt.Fprintln(con.out, name)
				}
				if c.Bool("remove") && err == nil {
					err = os.RemoveAll(name)
				}
			}
			return err
		},
	}
}
