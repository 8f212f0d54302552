package pickle

import "strings"

// known says what a class or function means, for those whose meaning Python fixes.
type known uint8

const (
	unknown            known = iota // a user's class: becomes inert data
	knownRefused                    // a class that a worker has no JSON for
	knownReconstructor              // copyreg._reconstructor(cls, base, state)
	knownNewObj                     // copyreg.__newobj__(cls, *args)
	knownNewObjEx                   // copyreg.__newobj_ex__(cls, args, kwargs)
	knownEncode                     // _codecs.encode(text, "latin1"): bytes in protocols 0 to 2
	knownGetattr                    // a nested class in protocols 0 to 3
	knownBytes
	knownBytearray
	knownList
	knownTuple
	knownSet
	knownDict
	knownDefaultDict
	knownDate
	knownTime
	knownDatetime
	knownTimedelta
	knownTimezone
	knownDecimal
	knownPath
	knownUUID
	knownEnum   // an enumeration of the standard library, whose member is its value
	knownFields // a dataclass of the protocol itself: its fields are its JSON
	knownDtype
	knownScalar // numpy scalar(dtype, bytes)
	knownNDArray
)

// knownNames are looked up by "module.qualname". All else in builtins and numpy is refused.
var knownNames = map[string]known{
	"copyreg._reconstructor": knownReconstructor,
	"copyreg.__newobj__":     knownNewObj,
	"copyreg.__newobj_ex__":  knownNewObjEx,
	"_codecs.encode":         knownEncode,
	"builtins.getattr":       knownGetattr,
	"builtins.bytes":         knownBytes,
	"builtins.bytearray":     knownBytearray,
	"builtins.list":          knownList,
	"builtins.tuple":         knownTuple,
	"builtins.set":           knownSet,
	"builtins.frozenset":     knownSet,
	"builtins.dict":          knownDict,

	"collections.OrderedDict": knownDict,
	"collections.defaultdict": knownDefaultDict,
	"collections.Counter":     knownDict,
	"collections.deque":       knownRefused,
	"collections.ChainMap":    knownRefused,
	"collections.UserDict":    knownRefused,
	"collections.UserList":    knownRefused,
	"collections.UserString":  knownRefused,

	"datetime.date":      knownDate,
	"datetime.time":      knownTime,
	"datetime.datetime":  knownDatetime,
	"datetime.timedelta": knownTimedelta,
	"datetime.timezone":  knownTimezone,

	"decimal.Decimal":    knownDecimal,
	"fractions.Fraction": knownRefused,
	"uuid.UUID":          knownUUID,

	"pathlib.PurePosixPath":        knownPath,
	"pathlib.PosixPath":            knownPath,
	"pathlib._local.PurePosixPath": knownPath, // Python 3.13
	"pathlib._local.PosixPath":     knownPath,

	"http.HTTPStatus": knownEnum,
	"http.HTTPMethod": knownEnum,

	"types.SimpleNamespace":      knownRefused,
	"re._compile":                knownRefused,
	"array._array_reconstructor": knownRefused,
	"ipaddress.IPv4Address":      knownRefused,
	"ipaddress.IPv6Address":      knownRefused,
	"ipaddress.IPv4Network":      knownRefused,
	"ipaddress.IPv6Network":      knownRefused,

	"agentix.bash.BashResult":    knownFields,
	"agentix.files.UploadResult": knownFields,

	"numpy.dtype":                         knownDtype,
	"numpy.core.multiarray.scalar":        knownScalar,
	"numpy._core.multiarray.scalar":       knownScalar,
	"numpy.ndarray":                       knownNDArray,
	"numpy.core.multiarray._reconstruct":  knownNDArray,
	"numpy._core.multiarray._reconstruct": knownNDArray,
	"numpy.core.numeric._frombuffer":      knownNDArray,
	"numpy._core.numeric._frombuffer":     knownNDArray,
}

// python2Modules are the names that protocols 0 to 2 use for modules that Python 3 renamed.
var python2Modules = map[string]string{
	"__builtin__": "builtins",
	"exceptions":  "builtins",
	"copy_reg":    "copyreg",
}

func lookup(name string) known {
	if k, ok := knownNames[name]; ok {
		return k
	}
	if strings.HasPrefix(name, "builtins.") || strings.HasPrefix(name, "numpy.") {
		return knownRefused
	}
	return unknown
}
