package deploy

// isServeFlag reports whether the stated vLLM version's `vllm serve` knows the
// flag (in run.yaml's form: underscores, no leading dashes).
func isServeFlag(key, version string) bool {
	for _, f := range serveFlags {
		if f.name == key {
			return f.in(version)
		}
	}
	return false
}

// ServeFlags lists the flags of the stated version, sorted.
func ServeFlags(version string) []string {
	var names []string
	for _, f := range serveFlags {
		if f.in(version) {
			names = append(names, f.name)
		}
	}
	return names
}

// serveFlag is one flag of `vllm serve` with the versions that have it; zero
// since and until are unbounded.
type serveFlag struct {
	name         string
	since, until [2]int // first and last minor version
}

func (f serveFlag) in(version string) bool {
	v, ok := parseVersion(version)
	if !ok {
		return true
	}
	return !less(v, f.since) && (f.until == [2]int{} || !less(f.until, v))
}

func less(a, b [2]int) bool { return a[0] < b[0] || a[0] == b[0] && a[1] < b[1] }
