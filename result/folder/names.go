package folder

// This file lists the names of files in an output folder.

// Names of the files in an output folder. Any other file in one is foreign.
const (
	ExtractFile      = "extract.json"
	FitFile          = "fit.json"
	ValidationFile   = "validation.json"
	CoefficientsFile = "coefficients.yaml"
	BLISFile         = "blis.yaml" // the coefficients in BLIS's terms
	ReportFile       = "report.html"
	InspectFile      = "inspect.json"
	SimulationFile   = "simulation.json"
	QueueFile        = "queue.json"
	QueuePage        = "queue.html"
	PredictorFile    = "predictor.json"
	PredictorRows    = "predictor_rows.json"
	ScoresFile       = "predictor_scores.json"
	PredictorPage    = "predictor.html"
	ExperimentFile   = "experiment.json"
	OptimiseFile     = "optimise.json"
	OptimiseLog      = "optimise.jsonl"
	ExperimentLog    = "experiment.runs" // of an experiment that is running
	TasksDir         = ".tasks"          // left by unfinished runs of older versions
)

// ownNames are the names that a stage may write; Claim refuses a folder with others.
var ownNames = map[string]bool{
	ExtractFile:                   true,
	FitFile:                       true,
	ValidationFile:                true,
	CoefficientsFile:              true,
	ReportFile:                    true,
	InspectFile:                   true,
	SimulationFile:                true,
	QueueFile:                     true,
	QueuePage:                     true,
	PredictorFile:                 true,
	PredictorRows:                 true,
	ScoresFile:                    true,
	PredictorPage:                 true,
	ExperimentFile:                true,
	ExperimentLog:                 true,
	OptimiseFile:                  true,
	OptimiseLog:                   true,
	BLISFile:                      true,
	BLISFile + ".hardware.json":   true,
	BLISFile + ".provenance.json": true,
	TasksDir:                      true,
	"tables":                      true,
	"rows":                        true,
	"figures":                     true,
	"rows.parquet":                true,
	"requests.parquet":            true,
	"decisions.parquet":           true,
	"windows.parquet":             true,
	"blis_results.json":           true,
	"rejected.jsonl":              true,
	".extract-cache.json":         true,
}

// IsOwn reports whether a file or folder of this name may be one that a stage writes.
func IsOwn(name string) bool { return ownNames[name] }

// ownFolders are those of ownNames that are folders; the others are files.
var ownFolders = []string{"tables", "rows", "figures", TasksDir}
