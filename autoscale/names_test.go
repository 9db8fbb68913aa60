package autoscale

import (
	"regexp"
	"strings"
	"testing"
)

// dnsSubdomain is what Kubernetes takes as the name of a resource (RFC 1123), of at most 253
// characters.
var dnsSubdomain = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// TestResourceNames: the name of a resource is one that Kubernetes takes, whatever the model is called.
func TestResourceNames(t *testing.T) {
	for _, c := range []struct{ prefix, model, want string }{
		{"va", "meta-llama/Llama-3.1-8B", "va-llama-3.1-8b"},
		{"va", "org/My_Model v2", "va-my-model-v2"},
		{"_va", "org/Qwen3+", "va-qwen3"},
		{"-", "org/.hidden.", "hidden"},
		{"va", "org/a-.b", "va-a.b"},
		{"va", "org/a..b", "va-a.b"},
		{"Straße", "org/M", "stra-e-m"},
		{"va", "org/" + strings.Repeat("x", 249) + "-y", "va-" + strings.Repeat("x", 249)},
	} {
		got := resourceName(c.prefix, c.model)
		if got != c.want || !dnsSubdomain.MatchString(got) || len(got) > 253 {
			t.Errorf("%s, %s: got %q, want %q", c.prefix, c.model, got, c.want)
		}
	}
}
