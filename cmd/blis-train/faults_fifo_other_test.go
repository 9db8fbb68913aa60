//go:build !unix

package main_test

import "errors"

// mkfifo: pipes have no place in the file systems of these platforms.
func mkfifo(string) error { return errors.ErrUnsupported }
