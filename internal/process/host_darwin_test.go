package process

func beHostIfAsked() {}
